"""Distributes the groups of cards over Ray workers; only this process reads and writes files.

Encoders and images are put into Ray's object store once, features are returned through it, and this process saves each
result as soon as it arrives. So workers need no shared disk, and an interrupted evaluation resumes at the next group,
with workers or without.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from ebclab.card.card import Card, GroupResult
from ebclab.card.catalog import GROUPS
from ebclab.card.measure import CardTask
from ebclab.card.ray_workers.schedule import TRIES, Job, Schedule
from ebclab.card.ray_workers.worker import Array, CardWorker, Given, SentCard, SentImages
from ebclab.card.results import Findings
from ebclab.cluster.join import cluster_session, cluster_size, nodes
from ebclab.cluster.placement import even_share
from ebclab.cluster.same_versions import require_same_versions
from ebclab.cluster.versions import Origin
from ebclab.data.image_set import ImageArrays, ImageSet, read_only
from ebclab.errors import EbclabError, TrainingError, UserError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.runs.environment import describe_environment
from ebclab.training.listener import Listener

_POLL_SECONDS = 1.0


def measure_on_workers(tasks: Sequence[CardTask], workers: int, on_progress: OnProgress) -> list[Card]:
    """Return a card for each task, with the same results as in one process."""
    evaluation = _Evaluation(tasks, workers, on_progress)
    if evaluation.is_complete:
        return evaluation.cards()
    with cluster_session(os.environ.get("RAY_ADDRESS") or "local", Listener()) as head:
        try:
            require_same_versions()
            evaluation.measure()
            return evaluation.cards()
        except RayError as error:
            raise (head.lost() or TrainingError(f"--workers: a worker failed, got {_last_line(error)}")) from error


@dataclass
class _Worker:
    """A Ray worker."""

    actor: Any  # handle of a ``CardWorker``
    card: int | None = None  # index of the card of its last job; None before its first


@dataclass
class _Underway:
    """A pending call of a worker."""

    worker: _Worker
    job: Job | None  # None for the initial call of ``hello``


@dataclass
class _Evaluation:
    tasks: Sequence[CardTask]
    workers: int
    on_progress: OnProgress
    _results: dict[tuple[int, str], GroupResult] = field(default_factory=dict)
    _features: dict[str, ray.ObjectRef[Array] | EbclabError] = field(default_factory=dict)
    _sent: dict[int, Any] = field(default_factory=dict)
    _environment: dict[str, Any] = field(default_factory=lambda: _here())

    def __post_init__(self) -> None:
        for number, task in enumerate(self.tasks):
            for group in task.groups:
                if (known := task.known(group, self._version)) is not None:
                    self._results[number, group] = known

    @property
    def _version(self) -> str:
        return str(self._environment["ebclab"])

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to measure."""
        return len(self._results) == sum(len(task.groups) for task in self.tasks)

    def cards(self) -> list[Card]:
        """Return the cards; requires that everything is measured."""
        return [
            task.card({group: self._results[number, group] for group in task.groups}, self._environment)
            for number, task in enumerate(self.tasks)
        ]

    def _jobs(self) -> list[Job]:
        """Return jobs for all groups without a result and for the features they use; loads features from disk."""
        jobs: list[Job] = []
        for number, task in enumerate(self.tasks):
            measuring = task.measuring
            for group in (each for each in task.groups if (number, each) not in self._results):
                info = GROUPS[group].info
                needs = {name: images for part in info.looks_at for name, images in measuring.images_of(part).items()}
                for name, images in needs.items():
                    if name not in self._features and (known := measuring.store.known(name, len(images))) is not None:
                        self._features[name] = ray.put(known.numpy())
                    jobs.append(Job(number, name, computes=True))
                jobs.append(Job(number, group, frozenset(needs), is_long=not info.is_quick))
        return jobs

    def measure(self) -> None:
        """Measure all groups without a result, on the cluster that this process has joined."""
        schedule = Schedule.of(self._jobs(), set(self._features))
        given = self._given(len(schedule.waiting))
        underway: dict[ray.ObjectRef[Any], _Underway] = {}
        for _ in range(given.workers):
            underway |= self._start(given)
        idle: list[_Worker] = []
        while underway and (schedule.waiting or any(each.job for each in underway.values())):
            self._show(underway)
            done, _ = ray.wait(list(underway), timeout=_POLL_SECONDS)
            for reference in done:
                each = underway.pop(reference)
                if self._take(reference, each, schedule):
                    idle.append(each.worker)
                else:
                    underway |= self._start(given)
            underway |= self._give(idle, schedule)
        self._show({})

    def _give(self, idle: list[_Worker], schedule: Schedule) -> dict[ray.ObjectRef[Any], _Underway]:
        """Assign jobs that can start to idle workers, and remove these from ``idle``."""
        begun = {}
        for worker in list(idle):
            if (job := schedule.next(worker.card)) is None:
                break
            idle.remove(worker)
            worker.card = job.card
            begun[self._begin(worker, job)] = _Underway(worker, job)
        return begun

    def _begin(self, worker: _Worker, job: Job) -> ray.ObjectRef[Any]:
        sent = self._send(job.card)
        if job.computes:
            reference: ray.ObjectRef[Any] = worker.actor.compute.remote(sent, job.what)
        else:
            features = {name: self._features[name] for name in job.needs}
            key = self.tasks[job.card].key(job.what, self._version)
            reference = worker.actor.measure.remote(sent, job.what, key, features)
        return reference

    def _take(self, reference: ray.ObjectRef[Any], each: _Underway, schedule: Schedule) -> bool:
        """Process the outcome of a call; return whether the worker is still alive."""
        job = each.job
        try:
            outcome = ray.get(reference)
        except RayTaskError as error:
            cause: object = error.cause
            if isinstance(cause, EbclabError):
                raise cause from error
            if job is None:
                raise
            self._lose(job, _last_line(error))
            outcome = None
        except RayError as error:
            if job is None:
                raise
            if not schedule.died(job):
                self._lose(job, f"its worker died {TRIES} times, got {_last_line(error)}")
            return False
        if job is None:
            self._environment = outcome
            return True
        schedule.done(job)
        if outcome is not None:
            self._keep(job, outcome)
        return True

    def _keep(self, job: Job, outcome: Any) -> None:
        """Record the outcome of a job, and save it."""
        task = self.tasks[job.card]
        if not job.computes:
            self._results[job.card, job.what] = outcome
            task.keep(outcome)
        elif isinstance(outcome, EbclabError):
            self._features[job.what] = outcome
        else:
            self._features[job.what] = ray.put(outcome)  # into this node's object store: a worker's node may be lost
            task.measuring.store.keep(job.what, read_only(outcome))

    def _lose(self, job: Job, reason: str) -> None:
        """Record why a job failed; groups that use features which failed report this themselves."""
        if job.computes:
            self._features[job.what] = TrainingError(
                f"features of {self.tasks[job.card].measuring.subject.label}: {reason}"
            )
        else:
            key = self.tasks[job.card].key(job.what, self._version)
            self._results[job.card, job.what] = GroupResult(job.what, key, Findings(()), 0.0, reason, failed=True)

    def _given(self, jobs: int) -> Given:
        """Return the resources of each worker, and their number."""
        cpus, gpus = cluster_size()
        workers = min(self.workers, jobs)
        if workers > cpus:
            raise UserError(
                f"--workers: each needs a CPU, got {self.workers} for {cpus:g} CPUs of the cluster; use fewer"
            )
        share = int(even_share(nodes(), workers))
        wants_gpu = gpus > 0 and any(task.device != "cpu" for task in self.tasks)
        gpu_share = (1.0 if gpus >= workers else int(10_000 * gpus / workers) / 10_000) if wants_gpu else 0.0
        return Given(share, gpu_share, Origin.here(), tuple(sys.argv), workers)

    def _start(self, given: Given) -> dict[ray.ObjectRef[Any], _Underway]:
        """Start a worker, whose first call returns its environment."""
        remote: Any = ray.remote(CardWorker)
        actor = remote.options(
            num_cpus=given.cpus,
            num_gpus=given.gpus,
            max_concurrency=2,  # a job, and calls of ``progress`` meanwhile
        ).remote(given)
        return {actor.hello.remote(): _Underway(_Worker(actor), None)}

    def _send(self, number: int) -> SentCard:
        """Return a card whose encoder and images are in Ray's object store, each put there once."""
        task, measuring = self.tasks[number], self.tasks[number].measuring
        measured, others, outside = measuring.measured, measuring.others, measuring.outside
        return SentCard(
            number,
            self._put(id(measuring.subject), measuring.subject.without_folder),
            SentImages(
                (measured.name, self._put_images(measured.train), self._put_images(measured.test)),
                tuple((each.name, self._put_images(each.train), self._put_images(each.test)) for each in others),
                tuple(
                    (each.name, each.kind, self._put_images(each.outside), self._put_images(each.inside))
                    for each in outside
                ),
            ),
            measuring.options,
            task.device,
            task.threads,
        )

    def _put_images(self, images: ImageSet) -> ray.ObjectRef[ImageArrays]:
        return self._put(id(images), lambda: ImageArrays.of(images))

    def _put(self, name: int, make: Any) -> ray.ObjectRef[Any]:
        """Return a reference to the result of ``make`` in Ray's object store, where it is put once per name."""
        reference: ray.ObjectRef[Any] = self._sent.get(name) or ray.put(make())
        self._sent[name] = reference
        return reference

    def _show(self, underway: Mapping[ray.ObjectRef[Any], _Underway]) -> None:
        """Report the number of groups done, and the progress of running jobs."""
        if self.on_progress is silent:
            return
        total = sum(len(task.groups) for task in self.tasks)
        self.on_progress(len(self._results), total, "groups of the card")
        working = {each.worker.actor.progress.remote(): each.job for each in underway.values() if each.job}
        told, _ = ray.wait(list(working), num_returns=len(working), timeout=_POLL_SECONDS) if working else ([], [])
        for reference in told:
            try:
                progress = ray.get(reference)
            except RayError:
                continue  # the worker died, which the call of its job reports
            job = working[reference]
            if progress is not None and job is not None:
                done, of, what = progress
                name = what if job.computes else f"{GROUPS[job.what].info.title}: {what}"
                self.on_progress(done, of, f"{self.tasks[job.card].measuring.subject.label}, {name}")


def _here() -> dict[str, Any]:
    """Return the environment of this process, which measures nothing."""
    return describe_environment(torch.device("cpu"), torch.get_num_threads(), 1, sys.argv)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
