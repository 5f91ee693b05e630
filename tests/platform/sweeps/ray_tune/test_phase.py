"""A phase that cannot go on ends with a sentence, no phase follows, and the same command takes it up again."""

import json
import math
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from made_up_images import put
from made_up_trials import Remembering, launch_of
from ray import tune
from ray.core.generated.common_pb2 import ActorDiedErrorContext, NodeDeathInfo
from ray.exceptions import ActorDiedError

from ebclab.cluster import join
from ebclab.cluster.each import each_on_cluster
from ebclab.errors import InterruptedRunError, RunError, UserError
from ebclab.runs.jobs import one_by_one
from ebclab.runs.stop_request import ASKED
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.ray_tune import phase
from ebclab.sweeps.ray_tune.phase import Phases
from ebclab.sweeps.resources import Limits, TrialResources
from ebclab.sweeps.scheduler import ConfirmProposals, Turn

RESOURCES = TrialResources(2, 1, 0, 1)


@dataclass
class Made:
    """The phases of a sweep in a folder, with what they log and show."""

    plan: SweepPlan
    folder: Path
    seconds: float | None = None

    def __post_init__(self) -> None:
        self.log, self.shown = SweepLog(self.folder / "trials.jsonl"), Remembering()
        launch = launch_of(SweepFolder(self.folder), self.plan, self.shown, limits=Limits(seconds=self.seconds))
        self.phases = Phases(launch, self.log, RESOURCES)


def test_a_machine_with_other_versions_ends_the_phase_with_its_sentence_and_no_trial_is_given_up(
    sweep_plan: Callable[..., SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_the_second(phases: Phases, *_: Any) -> None:
        scheduler = phases.scheduler
        first, second = scheduler.next_turn(), scheduler.next_turn()
        scheduler.on_outcome(second.trial, "refused", "node gpu-7: torch 1.0, got 2.0", 1.0)
        scheduler.on_turn_over(second.trial)
        assert scheduler.next_turn() is None  # nothing new begins
        scheduler.on_outcome(first.trial, "interrupted", "stopped", 1.0)
        scheduler.on_turn_over(first.trial)
        phases.go_on()
        assert phases.scheduler is scheduler  # nothing follows a search that was not finished
        assert scheduler.is_over

    monkeypatch.setattr(Phases, "_train", refuse_the_second)
    made = Made(sweep_plan(trials=3), tmp_path)
    with pytest.raises(UserError, match=r"^node gpu-7: torch 1\.0, got 2\.0$") as raised:
        made.phases.run()
    assert raised.value.exit_code == 2
    assert [trial.state for trial in made.log.trials.values()] == ["interrupted", "waiting"]
    assert not any(trial.is_over for trial in SweepLog(made.log.path).trials.values())


def test_a_log_that_cannot_be_written_while_tune_runs_is_one_sentence(sweep_plan, tmp_path, monkeypatch):
    class Tuner:
        """Turns what a callback raises into its own error, as Tune's controller does."""

        def __init__(self, *_: Any, tune_config: tune.TuneConfig, **__: Any) -> None:
            self._config = tune_config

        def fit(self) -> None:
            try:
                self._config.search_alg.suggest("1")
            except Exception:
                raise tune.TuneError(traceback.format_exc())  # noqa: B904

    monkeypatch.setattr(tune, "Tuner", Tuner)
    monkeypatch.setattr(tune, "with_parameters", lambda function, **_: function)
    monkeypatch.setattr(tune, "with_resources", lambda function, _: function)
    made = Made(sweep_plan(trials=3), tmp_path)
    made.log.path.mkdir()
    with pytest.raises(RunError, match=r"trials\.jsonl: cannot be written, got Is a directory$"):
        made.phases.run()


def test_a_stop_before_a_turn_waits_for_a_process_is_no_error_of_tune(cluster, sweep_plan, tmp_path, monkeypatch):
    next_turn = Phases.next_turn

    def interrupted(phases: Phases) -> Turn | None:
        turn = next_turn(phases)
        phases._request.set()  # what Ctrl+C sets
        return turn

    monkeypatch.setattr(Phases, "next_turn", interrupted)
    with join.cluster_session(cluster, Remembering()):
        made = Made(sweep_plan(trials=3), tmp_path)
        with pytest.raises(InterruptedRunError, match="stopped with 3 trials to go"):
            made.phases.run()
    assert [trial.state for trial in made.log.trials.values()] == ["interrupted"]


def _train_all(phases: Phases, *_: Any) -> None:
    """Finish every trial at once, as Ray Tune asks for turns."""
    phases.go_on()
    while turn := phases.scheduler.next_turn():
        phases.scheduler.on_epoch(turn.trial, turn.epochs, 0.5, 1.0, {})
        phases.scheduler.on_outcome(turn.trial, "finished", "", 1.0)
        phases.scheduler.on_turn_over(turn.trial)
        phases.go_on()


@pytest.mark.parametrize("asked", [None, "before", "between", "when the time is over"])
def test_the_confirmation_follows_the_search_in_one_run_of_tune_unless_somebody_asked_to_stop(
    asked: str | None, sweep_plan: Callable[..., SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Phases] = []
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", dict)

    def run_of_tune(phases: Phases, *_: Any) -> None:
        runs.append(phases)
        if asked == "when the time is over":
            phases.on_step()
            assert phases.scheduler.stop.is_set
        if asked in ("before", "when the time is over"):
            signal.raise_signal(signal.SIGINT)  # what Ctrl+C sends
        _train_all(phases)

    def confirmation(*given: Any) -> ConfirmProposals:
        if asked == "between":
            signal.raise_signal(signal.SIGINT)
        return ConfirmProposals(*given)

    monkeypatch.setattr(Phases, "_train", run_of_tune)
    monkeypatch.setattr(phase, "ConfirmProposals", confirmation)
    seconds = 0.0 if asked == "when the time is over" else None
    made = Made(sweep_plan(trials=2, top=1, seeds=2), tmp_path, seconds=seconds)
    handler = signal.getsignal(signal.SIGINT)
    if asked is None:
        made.phases.run()
    else:
        with pytest.raises(InterruptedRunError, match=f"stopped with {0 if asked == 'between' else 2} trials to go"):
            made.phases.run()
    assert runs == [made.phases]
    assert signal.getsignal(signal.SIGINT) is handler
    assert made.shown.notes.count(ASKED) == (asked is not None)
    kinds, shown = {
        None: (["search"] * 2 + ["confirm"] * 2, ["search: 2", "stop", "confirm: 2", "stop"]),
        "before": ([], ["search: 2", "stop"]),
        "when the time is over": ([], ["search: 2", "stop"]),
        "between": (["search"] * 2, ["search: 2", "stop"]),
    }[asked]
    assert [trial.kind for trial in made.log.trials.values()] == kinds
    assert [told.removeprefix(f"{tmp_path.name}, ") for told in made.shown.phases] == shown


def test_a_machine_that_will_go_is_told_once_by_its_name_and_running_trials_are_asked_to_save(
    sweep_plan: Callable[..., SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: {"id-a": 0})
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "id-a", "NodeManagerHostname": "a"}])
    made = Made(sweep_plan(trials=2), tmp_path)
    turn = made.phases.scheduler.next_turn()
    made.phases.on_step()
    made.phases.on_step()
    assert made.shown.notes == ["a will be taken away: running trials save at their next log step"]
    assert SweepFolder(tmp_path).run(turn.run_name).save_now.is_set


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_are_told_that_their_trial_is_over(sweep_plan, tmp_path, workers):
    made = Made(sweep_plan(f"resources.workers={workers}", trials=2), tmp_path)
    turn = made.phases.scheduler.next_turn()
    trial: Any = SimpleNamespace(config={"turn": vars(turn)})
    told = {"time_total_s": 1.0, "epoch": 1, "objective": 0.5}
    asked = SweepFolder(tmp_path).run("0000").stop
    assert made.phases.on_trial_result(None, trial, told) == "CONTINUE"
    assert not asked.is_set
    assert made.phases.on_trial_result(None, trial, {**told, "epoch": 2, "metrics/loss": math.nan}) == "STOP"
    assert SweepFolder(tmp_path).run("0000").stop.is_set == bool(workers)
    other = SweepFolder(tmp_path).run("0001").stop
    other.set()  # of an earlier turn
    following = made.phases.next_turn()
    assert following.run_name == "0001"
    assert SweepFolder(tmp_path).run("0001").stop.is_set == (not workers)


@pytest.mark.parametrize(
    ("address", "trial_gpus", "all_gpus", "reserved"),
    [
        ("", 0.0, 0, None),
        ("", 0.5, 1, None),  # this process has the one GPU
        ("", 0.5, 8, {"cpus": 2.0, "on_gpu": True}),
        ("head:6379", 0.0, 0, {"cpus": 2.0, "on_gpu": False}),
        ("head:6379", 1.0, 1, {"cpus": 2.0, "on_gpu": True}),
    ],
)
def test_what_trials_could_do_better_than_this_process_is_done_on_the_cluster(
    sweep_plan: Callable[..., SweepPlan],
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    trial_gpus: float,
    all_gpus: int,
    reserved: dict[str, Any] | None,
) -> None:
    monkeypatch.setattr(phase, "cluster_size", lambda: (16.0, float(all_gpus)))
    plan = sweep_plan(trials=1)
    resources = replace(plan.config.resources, address=address or None)
    plan = replace(plan, config=replace(plan.config, resources=resources))
    each: Any = phase.jobs_on_cluster(plan, TrialResources(1, 2.0, trial_gpus, 2))
    if reserved is None:
        assert each is one_by_one
    else:
        assert (each.func, each.keywords) == (each_on_cluster, reserved)


PROCESS = "The actor is dead because its worker process has died."
TAKEN, LOST = NodeDeathInfo.AUTOSCALER_DRAIN_PREEMPTED, NodeDeathInfo.UNEXPECTED_TERMINATION


@pytest.mark.parametrize(
    ("node", "text", "fault", "reason", "preempted"),
    [
        (TAKEN, "its node has died", "", "its machine was taken away", True),
        (LOST, "its node has died", "", "its machine was lost (process 41 on a)", False),
        (None, PROCESS, None, "its process died (process 41 on a)", False),
        (None, PROCESS, "Fatal Python error: Aborted", "its process died (process 41 on a): Aborted (SIGABRT)", False),
    ],
)
def test_a_machine_that_was_taken_away_is_told_from_a_process_that_died(
    node: int | None,
    text: str,
    fault: str | None,
    reason: str,
    preempted: bool,
    sweep_plan: Callable[..., SweepPlan],
    tmp_path: Path,
) -> None:
    died = ActorDiedErrorContext(
        actor_id=bytes(16),
        error_message=text,
        node_death_info=NodeDeathInfo(reason=node),
        pid=41,
        node_ip_address="a",
    )
    error = ActorDiedError(died)
    error.args = ()  # as that of a process that was there
    pickled = put(tmp_path / "error.pkl", ray.cloudpickle.dumps(error))
    made = Made(sweep_plan(trials=1), tmp_path)
    turn = made.phases.scheduler.next_turn()
    run = made.phases.folder.run("0000")
    if fault is not None:
        put(run.ray / "worker-0.json", json.dumps({"pid": 41, "host": "a", "ranks": 1, "kernel_kills": {}}))
        put(run.ray / "worker-0.fault", fault)
    trial: Any = SimpleNamespace(
        config={"turn": vars(turn)},
        pickled_error_file=str(pickled),
    )
    made.phases.on_trial_error(None, trial)
    (restarted,) = [event for event in made.log.events if event["event"] == "restarted"]
    assert (restarted["reason"], restarted.get("preempted", False)) == (reason, preempted)
    assert made.shown.notes == [f"trial 0000: {reason}; it is started again"]
    assert made.phases.scheduler.active == set()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Memory on the node was full\nmore", "Ray ended its process, out of memory: Memory on the node was full"),
        ("Traceback\nStoreError: s3://lab does not answer\n", "StoreError: s3://lab does not answer"),
    ],
)
@pytest.mark.parametrize("pickled", [None, b"of a class that does not load"])
def test_the_reason_is_found_where_tune_keeps_the_text_of_an_error_alone(sweep_plan, tmp_path, text, reason, pickled):
    made = Made(sweep_plan(trials=1), tmp_path)
    put(tmp_path / "error.txt", f"Failure # 1 (occurred at noon)\n{text}")
    turn = made.phases.scheduler.next_turn()
    trial: Any = SimpleNamespace(
        config={"turn": vars(turn)},
        pickled_error_file=pickled and str(put(tmp_path / "error.pkl", pickled)),
        error_file=str(tmp_path / "error.txt"),
    )
    made.phases.on_trial_error(None, trial)
    (restarted,) = [event for event in made.log.events if event["event"] == "restarted"]
    assert restarted["reason"].startswith(reason)
