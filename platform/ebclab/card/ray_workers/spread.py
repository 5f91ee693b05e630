"""Distributes the groups of cards over Ray workers; only this process reads and writes files.

Encoders and images are put into Ray's object store once, features are returned through it, and this process saves each
result as soon as it arrives. So workers need no shared disk, and an interrupted evaluation resumes at the next group,
with workers or without.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError

from ebclab.card.card import Card, Findings, GroupResult
from ebclab.card.groups import GROUPS
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measure import CardTask, measure_group
from ebclab.card.measuring import CardOptions, FeatureStore, Measuring
from ebclab.card.subject import Subject
from ebclab.cluster.death import death_in_words
from ebclab.cluster.join import cluster_session, cluster_size, nodes
from ebclab.cluster.placement import TRIES, even_share
from ebclab.cluster.versions import Origin, require_same_versions
from ebclab.config.sections import ON_RAY
from ebclab.config.yaml_text import JsonObject
from ebclab.data.image_set import ImageSet, read_only
from ebclab.errors import EbclabError, TrainingError, UserError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.hardware import resolve_device, set_threads
from ebclab.runs.environment import describe_environment
from ebclab.training.display import Listener


@dataclass(frozen=True)
class Job:
    """One unit of work."""

    card: int  # index
    what: str  # name of a group, or of features
    # names of the features that a group requires before it starts; empty for features
    needs: frozenset[str] = frozenset()
    computes: bool = False  # computes features; otherwise it measures a group
    is_long: bool = False  # is started early


@dataclass
class Schedule:
    """The jobs that are not completed."""

    waiting: list[Job]  # not assigned to a worker
    ready: set[str] = field(default_factory=set)  # names of features that are available, or have failed
    _begun: Counter[Job] = field(default_factory=Counter)

    @classmethod
    def of(cls, jobs: Sequence[Job], ready: set[str]) -> Schedule:
        """Return a schedule of jobs; features that several cards need are computed once, for the first of them."""
        first = {job.what: job for job in reversed(jobs) if job.computes and job.what not in ready}
        groups = [job for job in jobs if not job.computes]
        needed = frozenset().union(*(job.needs for job in groups))
        return cls([*(job for job in jobs if first.get(job.what) is job and job.what in needed), *groups], set(ready))

    def next(self, card: int | None) -> Job | None:
        """Return the next job for an idle worker, and remove it from ``waiting``; None if no job can start.

        Features have priority, since groups wait for them; then long groups; then groups of the worker's last card,
        whose classifier it may have cached.
        """
        able = [job for job in self.waiting if job.needs <= self.ready]
        if not able:
            return None
        chosen = min(able, key=lambda job: (not job.computes, not job.is_long, job.card != card))  # first among ties
        self.waiting.remove(chosen)
        self._begun[chosen] += 1
        return chosen

    def done(self, job: Job) -> None:
        """Record that a job has ended, whether it succeeded or failed."""
        if job.computes:
            self.ready.add(job.what)

    def died(self, job: Job) -> bool:
        """Requeue a job whose worker died, unless its attempts are used up; return whether it was requeued."""
        again = self._begun[job] < TRIES
        if again:
            self.waiting.insert(0, job)
        else:
            self.done(job)
        return again


_CARDS_AT_HAND = 2  # cards whose encoder, images and classifier a worker caches

Array = np.ndarray[Any, np.dtype[np.float32]]

SentSet = tuple[Callable[..., Any], ray.ObjectRef[ImageSet], ray.ObjectRef[ImageSet]]
"""What makes a set, and both of its parts in Ray's object store."""


def _received(sent: SentSet) -> Any:
    make, *parts = sent
    return make(*map(ray.get, parts))


@dataclass(frozen=True)
class SentCard:
    """Everything that a worker needs to evaluate one card."""

    number: int  # index of the card
    subject: ray.ObjectRef[Subject]  # without the folder of its run
    measured: SentSet
    others: tuple[SentSet, ...]
    outside: tuple[SentSet, ...]
    options: CardOptions
    device: str  # the setting ``resources.device``
    threads: int  # the setting ``resources.threads``; capped at the CPUs of a worker


@dataclass(frozen=True)
class WorkerResources:
    """Resources of every worker, and the command that started it."""

    cpus: int  # that it reserves, at least 1
    gpus: float  # that it reserves; may be a fraction
    origin: Origin  # machine and versions of the command; every worker must run the same versions
    command: tuple[str, ...]  # command line of the user
    workers: int  # number of workers


class CardWorker:
    """Runs one job at a time, and reports its progress meanwhile."""

    def __init__(self, resources: WorkerResources) -> None:
        self._resources = resources
        self._at_hand: OrderedDict[int, Measuring] = OrderedDict()
        self._progress: tuple[int, int, str] | None = None

    def hello(self) -> JsonObject:
        """Return the environment of this process: versions, machine, device, threads."""
        resources = self._resources
        resources.origin.require_same_here()
        device = resolve_device(ON_RAY if resources.gpus else "cpu")
        return describe_environment(device, resources.cpus, resources.workers, resources.command)

    def progress(self) -> tuple[int, int, str] | None:
        """Return the work done, the total work, and its description; None before the first report of a job."""
        return self._progress

    def compute(self, sent: SentCard, name: str) -> Array | EbclabError:
        """Return the features with this name, or the error if they cannot be computed."""
        measuring = self._measuring(sent)
        try:
            return measuring.features(measuring.images[name]).numpy()
        except EbclabError as error:
            return error
        except Exception as error:  # the text that ``measure_group`` reports within one process
            return EbclabError(f"{type(error).__name__}: {error}")

    def measure(
        self, sent: SentCard, group: str, key: str, features: Mapping[str, ray.ObjectRef[Array] | EbclabError]
    ) -> GroupResult:
        """Return the result of a group, with the features that it uses by name, or the error if there are none."""
        measuring = self._measuring(sent)
        for name, each in features.items():
            measuring.store.keep(name, each if isinstance(each, EbclabError) else read_only(ray.get(each)))
        return measure_group(group, key, measuring)

    def _measuring(self, sent: SentCard) -> Measuring:
        """Return a card with its cached results; sets the number of threads and clears the progress for its job."""
        self._progress = None
        resources = self._resources
        set_threads(min(sent.threads or resources.cpus, resources.cpus))
        if sent.number not in self._at_hand:
            if len(self._at_hand) >= _CARDS_AT_HAND:
                self._at_hand.popitem(last=False)
            device = resolve_device(ON_RAY if resources.gpus and sent.device != "cpu" else "cpu")
            self._at_hand[sent.number] = Measuring(
                ray.get(sent.subject),
                _received(sent.measured),
                sent.options,
                FeatureStore(None),
                device=device,
                on_progress=self._note,
                others=tuple(map(_received, sent.others)),
                outside=tuple(map(_received, sent.outside)),
            )
        self._at_hand.move_to_end(sent.number)
        return self._at_hand[sent.number]

    def _note(self, done: int, total: int, what: str) -> None:
        self._progress = (done, total, what)


_POLL_SECONDS = 1.0


def measure_on_workers(tasks: Sequence[CardTask], workers: int, on_progress: OnProgress) -> list[Card]:
    """Return a card for each task, measured by at least one worker, with the same results as in one process."""
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
    actor: Any  # handle of a ``CardWorker``
    card: int | None = None  # index of the card of its last job; None before its first


_Underway = dict[ray.ObjectRef[Any], tuple[_Worker, Job | None]]
"""Pending calls with their jobs; the first call of a worker, ``hello``, is no job."""


class _Evaluation:
    def __init__(self, tasks: Sequence[CardTask], workers: int, on_progress: OnProgress) -> None:
        self.tasks, self.workers, self.on_progress = tasks, workers, on_progress
        # of a worker, once one has answered
        self._environment = describe_environment(torch.device("cpu"), torch.get_num_threads(), 1, sys.argv)
        self._features: dict[str, ray.ObjectRef[Array] | EbclabError] = {}
        self._sent: dict[int, Any] = {}
        self._results = {
            (number, group): known
            for number, task in enumerate(tasks)
            for group in task.groups
            if (known := task.known(group, self._version)) is not None
        }
        self._total = sum(len(task.groups) for task in tasks)

    @property
    def _version(self) -> str:
        return str(self._environment["ebclab"])

    @property
    def is_complete(self) -> bool:
        return len(self._results) == self._total

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
                entry = GROUPS[group]
                needs = {name: images for part in entry.looks_at for name, images in measuring.images_of(part).items()}
                for name, images in needs.items():
                    if name not in self._features and (known := measuring.store.known(name, len(images))) is not None:
                        self._features[name] = ray.put(known.numpy())
                    jobs.append(Job(number, name, computes=True))
                jobs.append(Job(number, group, frozenset(needs), is_long=not entry.is_quick))
        return jobs

    def measure(self) -> None:
        """Measure all groups without a result, on the cluster that this process has joined."""
        schedule = Schedule.of(self._jobs(), set(self._features))
        resources = self._resources(len(schedule.waiting))
        underway: _Underway = {}
        for _ in range(resources.workers):
            underway |= _start(resources)
        idle: list[_Worker] = []
        while underway and (schedule.waiting or any(job for _, job in underway.values())):
            self._show(underway)
            done, _ = ray.wait(list(underway), timeout=_POLL_SECONDS)
            for reference in done:
                worker, job = underway.pop(reference)
                if self._take(reference, job, schedule):
                    idle.append(worker)
                else:
                    underway |= _start(resources)
            while idle and (next_job := schedule.next(idle[0].card)) is not None:
                underway |= self._begin(idle.pop(0), next_job)
        self._show({})

    def _begin(self, worker: _Worker, job: Job) -> _Underway:
        worker.card, sent = job.card, self._send(job.card)
        if job.computes:
            return {worker.actor.compute.remote(sent, job.what): (worker, job)}
        features = {name: self._features[name] for name in job.needs}
        key = self.tasks[job.card].key(job.what, self._version)
        return {worker.actor.measure.remote(sent, job.what, key, features): (worker, job)}

    def _take(self, reference: ray.ObjectRef[Any], job: Job | None, schedule: Schedule) -> bool:
        """Process the outcome of a call; return whether the worker is still alive."""
        try:
            outcome = ray.get(reference)
        except RayTaskError as error:
            cause: object = error.cause
            if isinstance(cause, EbclabError):
                raise cause from error
            if job is None:
                raise
            outcome = self._lost(job, _last_line(error))
        except RayError as error:
            if job is None:
                raise
            if not schedule.died(job):
                died = death_in_words(str(error))[0] or _last_line(error)
                self._keep(job, self._lost(job, f"its worker died {TRIES} times, the last time {died}"))
            return False
        if job is None:
            self._environment = outcome
        else:
            schedule.done(job)
            self._keep(job, outcome)
        return True

    def _keep(self, job: Job, outcome: Any) -> None:
        task = self.tasks[job.card]
        if not job.computes:
            self._results[job.card, job.what] = outcome
            task.keep(outcome)
        elif isinstance(outcome, EbclabError):
            self._features[job.what] = outcome
        else:
            self._features[job.what] = ray.put(outcome)  # into this node's object store: a worker's node may be lost
            task.measuring.store.keep(job.what, read_only(outcome))

    def _lost(self, job: Job, reason: str) -> GroupResult | EbclabError:
        """Return the outcome of a job that failed; groups that use features which failed report this themselves."""
        task = self.tasks[job.card]
        if job.computes:
            return TrainingError(f"features of {task.measuring.subject.label}: {reason}")
        return GroupResult(job.what, task.key(job.what, self._version), Findings(()), 0.0, reason, failed=True)

    def _resources(self, jobs: int) -> WorkerResources:
        cpus, gpus = cluster_size()
        workers = min(self.workers, jobs)
        if workers > cpus:
            raise UserError(
                f"--workers: each needs a CPU, got {self.workers} for {cpus:g} CPUs of the cluster; use fewer"
            )
        share = int(even_share(nodes(), workers))
        wants_gpu = gpus > 0 and any(task.device != "cpu" for task in self.tasks)
        gpu_share = (1.0 if gpus >= workers else int(10_000 * gpus / workers) / 10_000) if wants_gpu else 0.0
        return WorkerResources(share, gpu_share, Origin.here(), tuple(sys.argv), workers)

    def _send(self, number: int) -> SentCard:
        """Return a card whose encoder and images are in Ray's object store, each put there once."""
        task, measuring = self.tasks[number], self.tasks[number].measuring

        def whole(each: MeasuredSet) -> SentSet:
            make = partial(MeasuredSet, each.name, tests_held_out=each.tests_held_out)
            return make, self._put(each.train), self._put(each.test)

        return SentCard(
            number,
            self._put(measuring.subject, measuring.subject.without_folder),
            whole(measuring.measured),
            tuple(map(whole, measuring.others)),
            tuple(
                (partial(OutsideSet, each.name, each.kind), self._put(each.outside), self._put(each.inside))
                for each in measuring.outside
            ),
            measuring.options,
            task.device,
            task.threads,
        )

    def _put(self, original: object, make: Callable[[], Any] | None = None) -> ray.ObjectRef[Any]:
        """Return a reference to an original, or to what ``make`` makes of it, in Ray's object store, put there once."""
        reference: ray.ObjectRef[Any] = self._sent.get(id(original)) or ray.put(make() if make else original)
        self._sent[id(original)] = reference
        return reference

    def _show(self, underway: _Underway) -> None:
        if self.on_progress is silent:
            return
        self.on_progress(len(self._results), self._total, "groups of the card")
        working = {worker.actor.progress.remote(): job for worker, job in underway.values() if job}
        answered, _ = ray.wait(list(working), num_returns=len(working), timeout=_POLL_SECONDS) if working else ([], [])
        for reference in answered:
            try:
                progress = ray.get(reference)
            except RayError:
                continue  # the worker died, which the call of its job reports
            if progress is not None:
                job, (done, of, what) = working[reference], progress
                name = what if job.computes else f"{GROUPS[job.what].title}: {what}"
                self.on_progress(done, of, f"{self.tasks[job.card].measuring.subject.label}, {name}")


def _start(resources: WorkerResources) -> _Underway:
    remote: Any = ray.remote(CardWorker)
    actor = remote.options(
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
        max_concurrency=2,  # a job, and calls of ``progress`` meanwhile
    ).remote(resources)
    return {actor.hello.remote(): (_Worker(actor), None)}


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
