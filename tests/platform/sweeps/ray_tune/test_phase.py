"""A phase that cannot go on ends with a sentence, no phase follows, and the same command takes it up again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from ebclab.cluster import draining
from ebclab.errors import InterruptedRunError, VersionError
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import ConfirmProposals, SearchProposals
from ebclab.sweeps.ray_tune import phase
from ebclab.sweeps.ray_tune.phase import Phase, Phases
from ebclab.sweeps.resources import TrialResources

SILENT = SimpleNamespace(start=lambda *_: None, show=lambda *_: None, stop=lambda: None, note=lambda _: None)


def test_a_machine_with_other_versions_ends_the_phase_with_its_sentence_and_no_trial_is_given_up(
    sweep_plan: Callable[..., SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_the_second(phases: Phases, *_: Any) -> None:
        scheduler = phases.scheduler
        first, second = scheduler.next_turn(), scheduler.next_turn()
        assert first is not None
        assert second is not None
        scheduler.on_outcome(second.trial, "refused", "node gpu-7: torch 1.0, got 2.0", 1.0)
        scheduler.on_turn_over(second.trial)
        assert scheduler.next_turn() is None  # nothing new begins
        scheduler.on_outcome(first.trial, "interrupted", "stopped", 1.0)
        scheduler.on_turn_over(first.trial)
        phases.go_on()
        assert phases.scheduler is scheduler
        assert scheduler.is_over

    monkeypatch.setattr(phase, "run_sweep_trials", refuse_the_second)
    plan, log = sweep_plan(trials=3), SweepLog(tmp_path / "trials.jsonl")
    setup: Any = None
    display: Any = SILENT
    resources = TrialResources(2, 1, 0, 1)

    def search_and_more() -> Iterator[Phase]:
        yield Phase(SweepFolder(tmp_path), plan, log, resources, display, SearchProposals(plan))
        pytest.fail("nothing follows a search that was not finished")

    with pytest.raises(VersionError, match=r"^node gpu-7: torch 1\.0, got 2\.0$") as raised:
        Phases(search_and_more()).run(setup, resources, tmp_path)
    assert raised.value.exit_code == 2
    assert [trial.state for trial in log.trials.values()] == ["interrupted", "waiting"]
    again = SweepLog(tmp_path / "trials.jsonl")
    assert not any(trial.is_over for trial in again.trials.values())


class Shown:
    """What a display is told of its phases."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self, name: str, objective: str, num_trials: int) -> None:
        self.told.append(f"{name}: {num_trials}")

    def show(self, trials: Any) -> None: ...

    def note(self, text: str) -> None: ...

    def stop(self) -> None:
        self.told.append("stop")


def _train_all(phases: Phases, *_: Any) -> None:
    """Finish every trial at once, as Ray Tune asks for turns."""
    phases.go_on()
    while turn := phases.scheduler.next_turn():
        phases.scheduler.on_epoch(turn.trial, turn.epochs, 0.5, 1.0, {})
        phases.scheduler.on_outcome(turn.trial, "finished", "", 1.0)
        phases.scheduler.on_turn_over(turn.trial)
        phases.go_on()


@pytest.mark.parametrize("asked", [None, "before", "between"])
def test_the_confirmation_follows_the_search_in_one_run_of_tune_unless_somebody_asked_to_stop(
    asked: str | None, sweep_plan: Callable[..., SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Phases] = []

    def run_of_tune(phases: Phases, *_: Any) -> None:
        runs.append(phases)
        if asked == "before":
            signal.raise_signal(signal.SIGINT)  # what Ctrl+C sends
        _train_all(phases)

    monkeypatch.setattr(phase, "run_sweep_trials", run_of_tune)
    plan, log, shown = sweep_plan(trials=2, top=1, seeds=2), SweepLog(tmp_path / "trials.jsonl"), Shown()
    folder, resources = SweepFolder(tmp_path), TrialResources(1, 1, 0, 1)
    setup: Any = None

    def search_and_confirmation() -> Iterator[Phase]:
        yield Phase(folder, plan, log, resources, shown, SearchProposals(plan))
        if asked == "between":
            signal.raise_signal(signal.SIGINT)
        yield Phase(folder, plan, log, resources, shown, ConfirmProposals(plan, log))

    handler, whole = signal.getsignal(signal.SIGINT), Phases(search_and_confirmation())
    if asked is None:
        whole.run(setup, resources, tmp_path)
    else:
        with pytest.raises(InterruptedRunError, match=f"stopped with {2 if asked == 'before' else 0} trials to go"):
            whole.run(setup, resources, tmp_path)
    assert runs == [whole]
    assert signal.getsignal(signal.SIGINT) is handler
    search = [f"{tmp_path.name}, search: 2", "stop"]
    left = {None: 2, "before": 0, "between": 2}[asked]
    assert [trial.kind for trial in log.trials.values()] == ["search"] * left + ["confirm"] * (
        2 if asked is None else 0
    )
    confirmation = [f"{tmp_path.name}, confirm: 2", "stop"] if asked is None else []
    assert shown.told == search + confirmation


def test_a_machine_that_will_go_is_told_once_by_its_name_and_running_trials_are_asked_to_save(
    sweep_plan: Callable[..., SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "_PAUSE", 0.0)
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: {"id-a": 0})
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "id-a", "NodeManagerHostname": "a"}])
    notes: list[str] = []
    display: Any = SimpleNamespace(**{**vars(SILENT), "note": notes.append})
    plan, log = sweep_plan(trials=2), SweepLog(tmp_path / "trials.jsonl")
    one = Phase(SweepFolder(tmp_path), plan, log, TrialResources(1, 1, 0, 1), display, SearchProposals(plan))
    turn = one.scheduler.next_turn()
    assert turn is not None
    one.on_step()
    one.on_step()
    assert notes == ["a will be taken away: running trials save at their next log step"]
    assert one._run(turn.trial).save_now.is_set
