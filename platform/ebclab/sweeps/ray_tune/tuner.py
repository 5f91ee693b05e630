"""Runs a sweep scheduler on Ray Tune: Tune starts and reuses processes, the sweep scheduler makes all decisions.

Each turn of a trial is one trial of Tune. Tune holds no state that matters: the searcher, scheduler and callback below
pass everything on to the sweep scheduler.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from ray import tune
from ray.exceptions import RayActorError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from ebclab.sweeps.ray_tune.trial_worker import TrialSetup, run_turn
from ebclab.sweeps.resources import TrialResources
from ebclab.sweeps.scheduler import SweepScheduler, Turn


class SweepPhases(Protocol):
    """The phases of a sweep, one after the other."""

    @property
    def scheduler(self) -> SweepScheduler:
        """The scheduler of the present phase, which gives the turns."""

    def go_on(self) -> None:
        """Begin the next phase if the present one is over."""

    def on_step(self) -> None:
        """Called several times a second."""


def run_sweep_trials(phases: SweepPhases, setup: TrialSetup, resources: TrialResources, storage: Path) -> None:
    """Train all trials of a sweep on the cluster that this process has joined.

    Args:
        phases: The phases, whose schedulers give the turns.
        setup: Shared by all trials.
        resources: Resources that each trial reserves.
        storage: Folder that Tune may write to; a resume does not need it.
    """
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(run_turn, setup=setup), _resources(resources)),
        tune_config=tune.TuneConfig(
            num_samples=-1,
            max_concurrent_trials=resources.concurrent,  # by default, Tune lets only one turn wait for a process
            search_alg=_Turns(phases),
            scheduler=_Judge(phases),
            reuse_actors=True,
            trial_name_creator=_name,
            trial_dirname_creator=_name,
        ),
        run_config=tune.RunConfig(
            name="tune", storage_path=str(storage), verbose=0, callbacks=[_Heartbeat(phases.on_step)]
        ),
    )
    tuner.fit()


def _resources(resources: TrialResources) -> dict[str, float]:
    """Return what Ray reserves for a turn; a turn whose workers reserve for themselves runs on the head node."""
    if resources.cpus or resources.gpus:
        return {"cpu": resources.cpus, "gpu": resources.gpus}
    return {"cpu": 0, "node:__internal_head__": 0.001}  # Tune demands a reservation; this one costs nothing


def _name(trial: TuneTrial) -> str:
    return f"{_turn(trial).run_name}-{trial.trial_id}"


def _turn(trial: TuneTrial) -> Turn:
    return Turn(**trial.config["turn"])


class _Unsaved:
    """Pickles as empty: Tune pickles these objects for a restore that is never used; displays cannot be pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Turns(_Unsaved, Searcher):
    """Answers Tune's request for the next trial with the sweep scheduler's next turn."""

    def __init__(self, phases: SweepPhases) -> None:
        super().__init__()
        self._phases = phases

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        self._phases.go_on()
        if self._phases.scheduler.is_over:
            return str(Searcher.FINISHED)
        turn = self._phases.scheduler.next_turn()
        return {"turn": asdict(turn)} if turn else None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


class _Judge(_Unsaved, FIFOScheduler):
    """Passes a trial's reports from Tune to the sweep scheduler, which says whether its turn continues."""

    def __init__(self, phases: SweepPhases) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._phases = phases

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """Choose none, so that Tune starts turns in order: a choice here could take the process of a waiting turn.

        If the sweep is to end, turns that still wait for a process are stopped.
        """
        if self._phases.scheduler.stop.is_set:
            for turn in [turn for turn in tune_controller.get_live_trials() if turn.status == TuneTrial.PENDING]:
                tune_controller.stop_trial(turn)
        return None

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        turn, seconds = _turn(trial), float(result["time_total_s"])
        if "outcome" in result:
            answers = json.loads(result["answers"]) if result["answers"] else None
            self._phases.scheduler.on_outcome(turn.trial, result["outcome"], result["reason"], seconds, answers)
            return str(TrialScheduler.STOP)
        metrics = {key.removeprefix("metrics/"): value for key, value in result.items() if key.startswith("metrics/")}
        ends = self._phases.scheduler.on_epoch(turn.trial, result["epoch"], result["objective"], seconds, metrics)
        return str(TrialScheduler.STOP if ends else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> None:
        self._phases.scheduler.on_turn_over(_turn(trial).trial)

    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        self._phases.scheduler.on_outcome(_turn(trial).trial, "interrupted", "stopped before it had a process", 0.0)
        self._phases.scheduler.on_turn_over(_turn(trial).trial)

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        error = trial.get_pickled_error()  # None when no process was left to raise one
        if isinstance(error, RayActorError) and error.preempted:
            self._phases.scheduler.on_death(_turn(trial).trial, "its machine was taken away", preempted=True)
        else:
            lines = str(error).strip().splitlines() if error else []
            self._phases.scheduler.on_death(_turn(trial).trial, lines[-1] if lines else "its process died")
        self._phases.scheduler.on_turn_over(_turn(trial).trial)


class _Heartbeat(_Unsaved, TrialProgressCallback):
    """Calls back several times a second from Tune's loop; replaces Tune's own printed lines about trials."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        super().__init__()
        self._on_step = on_step

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        self._on_step()

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        pass

    def log_result(self, trial: TuneTrial, result: dict[str, Any], error: bool = False) -> None:
        pass
