"""Runs the trials of a sweep on Ray: search and confirmation, displayed, timed, stopped on request, by Ray Tune.

Population based training makes a run that starts from another run's checkpoint with new settings.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.exceptions import RayActorError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from ebclab.background import logged
from ebclab.cluster.death import death_in_words
from ebclab.cluster.each import each_on_cluster
from ebclab.cluster.join import Notices, cluster_session, cluster_size, nodes, nodes_to_come
from ebclab.cluster.versions import Origin, require_same_versions
from ebclab.config import to_yaml
from ebclab.errors import EbclabError, InterruptedRunError, RunError, UserError
from ebclab.evaluation.answers import Answers
from ebclab.formatting import count
from ebclab.runs import environment
from ebclab.runs.death import how_it_died
from ebclab.runs.folder import RunFolder
from ebclab.runs.initial_weights import keep_weights
from ebclab.runs.jobs import Each, one_by_one
from ebclab.runs.stop_request import StopFlag, stop_on_signals
from ebclab.storage import atomic
from ebclab.storage.mirror import MANIFEST
from ebclab.storage.reading import read_json_object, typed
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.policies.population import explore
from ebclab.sweeps.preflight import SweepLaunch
from ebclab.sweeps.ray_tune.trial_worker import TrialSetup, run_turn
from ebclab.sweeps.resources import Limits, TrialResources, share_out
from ebclab.sweeps.scheduler import ConfirmProposals, SearchProposals, SweepScheduler, Turn
from ebclab.sweeps.space.space import Point, Settings


def clone_run(folder: SweepFolder, plan: SweepPlan, trial: Trial, donor: Trial) -> tuple[Point, Settings]:
    """Make the next run folder of ``trial`` from the newest checkpoint of ``donor``, with settings near the donor's.

    The checkpoint's files are linked where the file system allows it, otherwise copied: checkpoints never change, and
    the donor may delete its own. The trial's new point and settings are returned.
    """
    epoch = trial.epochs_done
    rate = plan.population.resample_rate
    point = explore(donor.point, plan.space, seed=plan.config.seed, trial_id=trial.id, epoch=epoch, resample_rate=rate)
    settings = plan.space.settings(point)
    donated = folder.run(donor.run_name).pull(("last",))
    paths = sorted(donated.checkpoints.glob("last-*"))
    if not paths:
        raise RunError(f"{donated.path}: has no checkpoint to continue from; restore its folder")
    source = next((path for path in paths if _epochs_done(path) == epoch), paths[-1])  # or the newest, if it is gone
    run = folder.run(f"{trial.id}-g{trial.generation + 1}")
    if run.path.exists():  # left by a sweep that was killed before the clone was in its log
        shutil.rmtree(run.path)
    run.clear_store()
    atomic.make_folder(run.checkpoints)
    config = trial_config(plan.config, settings, seed=trial.seed, epochs=trial.epochs)
    done = _epochs_done(source)
    copied = f"{folder.path.name}/{donor.run_name} after epoch {epoch if done is None else done}"
    config = replace(config, training=replace(config.training, copied_weights=copied))
    atomic.write_text(run.config_path, to_yaml(config))
    with atomic.new_folder(run.checkpoints / source.name) as aside:
        for file in source.iterdir():
            _link(file, aside / file.name)
    run.send()
    return point, settings


def _epochs_done(path: Path) -> int | None:
    """Return how many epochs were done at a checkpoint; None when it cannot be read."""
    try:
        done: int = read_json_object(path / MANIFEST)["facts"]["epochs_done"]
    except (RunError, KeyError, TypeError):
        return None
    return done


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


@contextmanager
def trained_sweep(launch: SweepLaunch) -> Iterator[tuple[SweepLog, Each]]:
    """Train all trials of a sweep; yield the log, and what does other jobs on the cluster, while the folder is claimed.

    If this process has already joined a Ray instance, that one is used and left running.
    """
    folder, plan = launch.folder, launch.plan
    with cluster_session(plan.config.resources.cluster, launch.display):
        require_same_versions()
        resources = resources_of(plan, launch.limits)
        with folder.claim_for(plan) as syncer:
            if launch.weights is not None:
                keep_weights(folder.initial_weights, launch.weights)
                syncer.push()
            log = folder.read_log(syncer)
            write_start(launch, log, resources)
            trials = f"{count(plan.trials, 'trial')} of {plan.epochs_in_words()}"
            launch.display.note(f"{trials}; {resources.in_words()}, in {folder.address}")
            Phases(launch, log, resources).run()
            yield log, jobs_on_cluster(plan, resources)


def write_start(launch: SweepLaunch, log: SweepLog, resources: TrialResources) -> None:
    """Log that the sweep starts or is resumed, with its resources, the digest of its images and its machine.

    The results of an earlier sweep that it learns from are logged once, when it begins to learn from that.
    """
    warm_start, earlier = launch.warm_start
    is_new = not log.trials or log.learnt_from.get("warm_start") != warm_start
    learnt = {"earlier": list(map(list, earlier))} if earlier and is_new else {}
    log.append(
        "started" if not log.trials else "resumed",
        trials=launch.plan.trials,
        concurrent=resources.concurrent,
        gpus_per_trial=resources.all_gpus,
        searches=launch.limits.searches,
        warm_start=warm_start,
        images=launch.split.content,
        environment=environment.describe_environment(torch.device("cpu"), resources.threads, 1, sys.argv),
        **learnt,
    )


def resources_of(plan: SweepPlan, limits: Limits) -> TrialResources:
    """Return what each trial reserves on the cluster that this process has joined."""
    cpus, gpus = cluster_size()
    most = max(plan.trials, plan.confirming_runs)
    found = share_out(plan.config.resources, limits, cpus=cpus, gpus=gpus, num_trials=most)
    return found.on([*nodes(), *nodes_to_come(found.concurrent)])


def jobs_on_cluster(plan: SweepPlan, resources: TrialResources) -> Each:
    """Return what does jobs beside the trials: this process if it has all that they could have, else the cluster's.

    The head of a cluster is mostly a small machine without a GPU.
    """
    if plan.config.resources.cluster == "local" and (not resources.all_gpus or cluster_size()[1] <= 1):
        return one_by_one
    return partial(each_on_cluster, cpus=max(1.0, resources.cpus), on_gpu=resources.all_gpus > 0)


class _Request(StopFlag):
    """The user's request to stop a phase, which lets none follow; the end of the time for the search does."""

    def __init__(self, stop: StopFlag) -> None:
        super().__init__()
        self._stop = stop

    def set(self) -> None:
        super().set()
        self._stop.set()


class Phases(FIFOScheduler):
    """The search of a sweep and, when it is over, the confirmation of its best settings by the same processes.

    It is Tune's scheduler, each turn of a trial one trial of Tune. Tune starts and reuses processes and holds no state
    that matters: its requests and reports are passed on to the sweep scheduler, which makes all decisions.

    Attributes:
        folder: The folder of the sweep.
        scheduler: The scheduler of the present phase.
    """

    def __init__(self, launch: SweepLaunch, log: SweepLog, resources: TrialResources) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._launch, self._log, self._resources = launch, log, resources
        self.folder, self._plan, self._display = launch.folder, launch.plan, launch.display
        self._has_workers = launch.plan.config.resources.workers > 0
        self._open = ExitStack()
        self._prepare(SearchProposals(launch.plan, launch.warm_start.results), launch.limits.seconds)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing: Tune pickles this object for a restore that is never used; displays cannot be pickled."""
        return {}

    def _prepare(self, proposals: SearchProposals | ConfirmProposals, seconds: float | None = None) -> None:
        self._kind, self._seconds, self._began = proposals.kind, seconds, time.monotonic()
        self._notices = Notices()
        self._asked: set[str] = set()  # ids of trials that were asked to stop
        stop = StopFlag()
        self._request = _Request(stop)
        self.scheduler = SweepScheduler(
            self._log,
            self._plan,
            proposals,
            concurrent=self._resources.concurrent,
            stop=stop,
            clone=partial(clone_run, self.folder, self._plan),
        )

    def _begin(self) -> None:
        """Display the phase and listen for requests to stop it, unless it has no work left."""
        scheduler, display = self.scheduler, self._display
        if scheduler.is_over:
            return
        for trial in scheduler.trials:
            if not trial.is_over:
                self._run(trial.id).stop.clear()
        total = len(scheduler.trials) + scheduler.left
        display.start(f"{self.folder.path.name}, {self._kind}", self._plan.config.evaluation.objective, total)
        self._open.callback(display.stop)
        self._open.callback(lambda: display.show(scheduler.trials))
        self._open.enter_context(stop_on_signals(self._request, display.note))

    def go_on(self) -> None:
        """Begin the confirmation if the search is over."""
        if self._kind == "confirm" or not self.scheduler.is_over or self._was_stopped:
            return
        confirmation = ConfirmProposals(self._plan, self._log)
        self._open.close()
        if not self._was_stopped:  # by a request in the meantime
            self._prepare(confirmation)
            self._begin()

    @property
    def _was_stopped(self) -> bool:
        """Whether no phase may follow: someone asked to stop, a machine refused, or the log cannot be written."""
        return self._request.is_set or bool(self.scheduler.refusal) or self._log.failure is not None

    def _require_not_stopped(self) -> None:
        """Raise what stopped the phase, if anything did."""
        scheduler = self.scheduler
        if self._log.failure is not None:
            raise self._log.failure
        if scheduler.refusal:
            raise UserError(scheduler.refusal)
        if self._was_stopped:
            left = sum(not trial.is_over for trial in scheduler.trials) + scheduler.left
            raise InterruptedRunError(
                f"stopped with {count(left, 'trial')} to go; everything is saved in {self.folder.address}; "
                "the same command resumes from there"
            )

    def run(self) -> None:
        """Train all trials that are not over."""
        self._begin()
        try:
            self.go_on()
            if not self.scheduler.is_over:
                self._train()
        finally:
            self._open.close()
        self._require_not_stopped()

    def _train(self) -> None:
        """Train on the cluster that this process has joined; a resume does not need the hidden folder of Tune."""
        launch, resources = self._launch, self._resources
        setup = TrialSetup(
            folder=self.folder,
            config=self._plan.config,
            methods=launch.methods,
            images=None if self._has_workers else launch.split,
            threads=resources.threads,
            gpus=resources.gpus,
            command=tuple(sys.argv),
            weights=self.folder.initial_weights if launch.weights is not None else None,
            origin=Origin.here(),
        )
        if resources.cpus or resources.gpus:
            reserved = {"cpu": resources.cpus, "gpu": resources.gpus}
        else:  # the trial's workers reserve for themselves; Tune demands a reservation, and this one costs nothing
            reserved = {"cpu": 0, "node:__internal_head__": 0.001}
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(run_turn, setup=setup), reserved),
            tune_config=tune.TuneConfig(
                num_samples=-1,
                max_concurrent_trials=resources.concurrent,  # by default, Tune lets only one turn wait for a process
                search_alg=_Turns(self),
                scheduler=self,
                reuse_actors=True,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name="tune", storage_path=str(self.folder.own(".ray")), verbose=0, callbacks=[_Heartbeat(self)]
            ),
        )
        of_tune = logging.getLogger("ray.tune.tune")
        of_tune.addFilter(_is_news)
        try:
            tuner.fit()
        except tune.TuneError as error:  # what goes wrong in this class, such as a log that cannot be written
            behind: BaseException | None = error
            while isinstance(behind, tune.TuneError):
                behind = behind.__cause__ or behind.__context__
            if isinstance(behind, EbclabError | OSError):
                raise behind from None
            raise
        finally:
            of_tune.removeFilter(_is_news)

    def next_turn(self) -> Turn | None:
        """Return the next turn, if there is one; its workers are not those that were asked to stop before."""
        turn = self.scheduler.next_turn()
        if turn is not None and self._has_workers:
            with logged():
                self.folder.run(turn.run_name).stop.clear()
        return turn

    def on_step(self) -> None:
        """Display the progress of the phase, and ask its trials to save or to stop."""
        stop = self.scheduler.stop
        self._display.show(self.scheduler.trials)
        self._notices.tell(self._save_before)
        elapsed = time.monotonic() - self._began
        if self._seconds is not None and elapsed > self._seconds and not stop.is_set:
            self._display.note("the time for the search is over: running trials save and stop")
            stop.set()
        if self._log.failure is not None:
            stop.set()
        if stop.is_set:
            for trial_id in set(self.scheduler.active) - self._asked:
                with logged():
                    self._run(trial_id).stop.set()
                    self._asked.add(trial_id)

    def _save_before(self, machines: list[str]) -> None:
        """Ask running trials to save before machines are taken away."""
        self._display.note(f"{', '.join(machines)} will be taken away: running trials save at their next log step")
        for trial_id in self.scheduler.active:
            with logged():
                self._run(trial_id).save_now.set()

    def _run(self, trial_id: str) -> RunFolder:
        return self.folder.run(self._log.trials[trial_id].run_name)

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """Choose none, so that Tune starts turns in order: a choice here could take the process of a waiting turn.

        If the sweep is to end, turns that still wait for a process are stopped.
        """
        if self.scheduler.stop.is_set:
            for turn in [turn for turn in tune_controller.get_live_trials() if turn.status == TuneTrial.PENDING]:
                turn.init_local_path()  # has none before it waits for a process, and Tune then ends in an error
                tune_controller.stop_trial(turn)
        return None

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: Mapping[str, Any]) -> str:
        """Take a report of a turn; return whether the turn continues."""
        turn, seconds = _turn(trial), float(result["time_total_s"])
        if "outcome" in result:
            answers = typed(json.loads(result["answers"]), Answers) if result["answers"] else None
            self.scheduler.on_outcome(turn.trial, result["outcome"], result["reason"], seconds, answers)
            return str(TrialScheduler.STOP)
        metrics = {key.removeprefix("metrics/"): value for key, value in result.items() if key.startswith("metrics/")}
        if not self.scheduler.on_epoch(turn.trial, result["epoch"], result["objective"], seconds, metrics):
            return str(TrialScheduler.CONTINUE)
        if self._has_workers:  # Tune only tells the trial's process, when it needs it
            with logged():
                self.folder.run(turn.run_name).stop.set()
        return str(TrialScheduler.STOP)

    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: Mapping[str, Any]) -> None:
        """End the turn."""
        self.scheduler.on_turn_over(_turn(trial).trial)

    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        """End a turn that never had a process."""
        self.scheduler.on_outcome(_turn(trial).trial, "interrupted", "stopped before it had a process", 0.0)
        self.scheduler.on_turn_over(_turn(trial).trial)

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        """Handle the death of a turn's process, and display it if the trial is started again."""
        name, run = _turn(trial).trial, self.folder.run(_turn(trial).run_name, "worker")
        error, text = _error_of(trial)
        preempted = isinstance(error, RayActorError) and error.preempted
        died, pid = ("its machine was taken away", "") if preempted else death_in_words(text)
        reason = died + how_it_died(run.ray, 0, pid) if died else (text.strip() or "no text").splitlines()[-1]
        self.scheduler.on_death(name, reason, preempted=preempted)
        if not self._log.trials[name].is_over:
            self._display.note(f"trial {name}: {reason}; it is started again")
        self.scheduler.on_turn_over(name)


def _turn(trial: TuneTrial) -> Turn:
    return Turn(**trial.config["turn"])


def _name(trial: TuneTrial) -> str:
    return f"{_turn(trial).run_name}-{trial.trial_id}"


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether the user has not been told: turns that died are told when they die, and are begun again."""
    return not record.getMessage().startswith("Trials did not complete")


def _error_of(trial: TuneTrial) -> tuple[object, str]:
    """Return the error that ended a turn, None if Tune has kept its text alone, and the text.

    They are in the driver's folder; Tune's own methods look for the copies that it makes at the end of the sweep.
    """
    if trial.pickled_error_file:
        with suppress(Exception), open(trial.pickled_error_file, "rb") as file:  # whatever an own class raises
            error = ray.cloudpickle.load(file)
            return error, str(error)
    return None, Path(trial.error_file).read_text(encoding="utf-8")


class _Turns(Searcher):
    """Answers Tune's request for the next trial with the sweep scheduler's next turn."""

    def __init__(self, phases: Phases) -> None:
        super().__init__()
        self._phases = phases

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        self._phases.go_on()
        if self._phases.scheduler.is_over:
            return str(Searcher.FINISHED)
        turn = self._phases.next_turn()
        return {"turn": asdict(turn)} if turn else None

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass


class _Heartbeat(TrialProgressCallback):
    """Calls back several times a second from Tune's loop; replaces Tune's own printed lines about trials."""

    def __init__(self, phases: Phases) -> None:
        super().__init__()
        self._phases = phases

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        self._phases.on_step()

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        pass

    def log_result(self, trial: TuneTrial, result: Mapping[str, Any], error: bool = False) -> None:
        pass
