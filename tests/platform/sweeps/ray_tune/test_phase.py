"""A phase that cannot go on ends with a sentence, and the same command takes it up again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebclab.errors import VersionError
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import SearchProposals
from ebclab.sweeps.ray_tune import phase
from ebclab.sweeps.ray_tune.phase import Phase
from ebclab.sweeps.resources import TrialResources
from ebclab.sweeps.scheduler import SweepScheduler

SILENT = SimpleNamespace(start=lambda *_: None, show=lambda *_: None, stop=lambda: None, note=lambda _: None)


def test_a_machine_with_other_versions_ends_the_phase_with_its_sentence_and_no_trial_is_given_up(
    sweep_plan: Callable[..., SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_the_second(scheduler: SweepScheduler, *_: Any) -> None:
        first, second = scheduler.next_turn(), scheduler.next_turn()
        assert first is not None
        assert second is not None
        scheduler.on_outcome(second.trial, "refused", "node gpu-7: torch 1.0, got 2.0", 1.0)
        scheduler.on_turn_over(second.trial)
        assert scheduler.next_turn() is None  # nothing new begins
        scheduler.on_outcome(first.trial, "interrupted", "stopped", 1.0)
        scheduler.on_turn_over(first.trial)
        assert scheduler.is_over

    monkeypatch.setattr(phase, "run_sweep_trials", refuse_the_second)
    plan, log = sweep_plan(trials=3), SweepLog(tmp_path / "trials.jsonl")
    setup: Any = None
    display: Any = SILENT
    work = Phase(SweepFolder(tmp_path), plan, log, setup, TrialResources(2, 1, 0, 1), display, SearchProposals(plan))
    with pytest.raises(VersionError, match=r"^node gpu-7: torch 1\.0, got 2\.0$") as raised:
        work.run()
    assert raised.value.exit_code == 2
    assert [trial.state for trial in log.trials.values()] == ["interrupted", "waiting"]
    again = SweepLog(tmp_path / "trials.jsonl")
    assert not any(trial.is_over for trial in again.trials.values())
