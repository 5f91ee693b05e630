"""A course on Ray Tune: Tune starts processes, keeps them warm and tells what happens in them; the course decides.

Each turn of a trial is a trial of Tune's. Tune keeps nothing that matters: its searcher, its scheduler and its
callback here pass on what they hear.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from ebclab.sweeps.ray_tune.trial_worker import TrialSetup, run_turn
from ebclab.sweeps.resources import TrialResources
from ebclab.sweeps.scheduler import SweepScheduler, Turn


def run_sweep_trials(
    scheduler: SweepScheduler, setup: TrialSetup, resources: TrialResources, storage: Path, on_step: Callable[[], None]
) -> None:
    """Train all trials of a course, on the cluster that this process has joined.

    Args:
        scheduler: What to train.
        setup: What all trials share.
        resources: What a trial reserves.
        storage: Where Tune may write; of no use to a resume.
        on_step: Called several times a second.
    """
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(run_turn, setup=setup), _resources(resources)),
        tune_config=tune.TuneConfig(
            num_samples=-1,
            max_concurrent_trials=resources.concurrent,  # as many may wait for a process at once; Tune's default is one
            search_alg=_Turns(scheduler),
            scheduler=_Judge(scheduler),
            reuse_actors=True,
            trial_name_creator=_name,
            trial_dirname_creator=_name,
        ),
        run_config=tune.RunConfig(name="tune", storage_path=str(storage), verbose=0, callbacks=[_Heartbeat(on_step)]),
    )
    tuner.fit()


def _resources(resources: TrialResources) -> dict[str, float]:
    """Return what Ray reserves for a turn; one whose workers reserve for themselves gets a place on the head node."""
    if resources.cpus or resources.gpus:
        return {"cpu": resources.cpus, "gpu": resources.gpus}
    return {"cpu": 0, "node:__internal_head__": 0.001}  # Tune wants a reservation, and this one takes nothing away


def _name(trial: TuneTrial) -> str:
    return f"{_turn(trial).run_name}-{trial.trial_id}"


def _turn(trial: TuneTrial) -> Turn:
    return Turn.from_json(trial.config["turn"])


class _Unsaved:
    """Tune pickles what it is given, for a restore of its own that is never asked for; a display cannot be pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Turns(_Unsaved, Searcher):
    """Tune asks for the next trial; the course gives its next order."""

    def __init__(self, scheduler: SweepScheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        if self._scheduler.is_over:
            return str(Searcher.FINISHED)
        turn = self._scheduler.next_turn()
        return {"turn": turn.to_json()} if turn else None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


class _Judge(_Unsaved, FIFOScheduler):
    """Tune tells what a trial reports; the course says whether it goes on."""

    def __init__(self, scheduler: SweepScheduler) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scheduler = scheduler

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """Leave it to Tune, which starts turns in order; a choice would take over the process of one that waits.

        Turns that still wait for a place when the sweep is to end are not given one.
        """
        if self._scheduler.stop.is_set:
            for turn in [turn for turn in tune_controller.get_live_trials() if turn.status == TuneTrial.PENDING]:
                tune_controller.stop_trial(turn)
        return None

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        turn, seconds = _turn(trial), float(result["time_total_s"])
        if "outcome" in result:
            self._scheduler.on_outcome(turn.trial, result["outcome"], result["reason"], seconds)
            return str(TrialScheduler.STOP)
        metrics = {key.removeprefix("metrics/"): value for key, value in result.items() if key.startswith("metrics/")}
        ends = self._scheduler.on_epoch(turn.trial, result["epoch"], result["objective"], seconds, metrics)
        return str(TrialScheduler.STOP if ends else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> None:
        self._scheduler.on_turn_over(_turn(trial).trial)

    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        self._scheduler.on_outcome(_turn(trial).trial, "interrupted", "stopped before it had a place", 0.0)
        self._scheduler.on_turn_over(_turn(trial).trial)

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        error = trial.get_pickled_error()  # none when there was nobody left to raise one
        lines = str(error).strip().splitlines() if error else []
        self._scheduler.on_death(_turn(trial).trial, lines[-1] if lines else "its process died")
        self._scheduler.on_turn_over(_turn(trial).trial)


class _Heartbeat(_Unsaved, TrialProgressCallback):
    """Tune's loop, felt several times a second; in the place of Tune's own lines about trials."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        super().__init__()
        self._on_step = on_step

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        self._on_step()

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        pass

    def log_result(self, trial: TuneTrial, result: dict[str, Any], error: bool = False) -> None:
        pass
