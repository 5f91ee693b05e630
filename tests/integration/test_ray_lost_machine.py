"""Machines that die while a run trains there, replaced or not. ``tests/support/faults.py`` says what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from faults import MARKS, STEPS, STEPS_AN_EPOCH, Fault, Machines, Record, assert_whole, finish, pretrain_run
from run_files import records, same_bits
from two_ranks import TINY, two_workers

import ebclab
from ebclab.training.display import Listener

pytestmark = MARKS


def test_a_machine_that_dies_costs_the_steps_since_the_last_checkpoint(
    machines: Machines, undisturbed_weights: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    _, leaving = machines.have(2)

    def die() -> None:
        machines.kill(leaving)
        machines.add()

    fault = Fault(tmp_path / "run", 24, die)
    result = fault.during(lambda: pretrain_run(two_workers(), tmp_path)).result
    finish(fault, record_property, "a node killed during pretraining; another one comes")
    assert_whole(tmp_path / "run", fault)
    assert result["steps"] == STEPS
    assert same_bits(tmp_path / "run", undisturbed_weights)


def test_a_machine_that_dies_and_is_not_replaced_leaves_a_run_with_the_curve_that_it_would_have_had(
    machines: Machines, full_waits: bool, tmp_path: Path, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not full_waits:
        monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "10")  # for as many workers as before; Ray's is 60
    (_, leaving), run = machines.have(2), tmp_path / "run"
    elastic = ["resources.workers=1", "resources.max_workers=2", "resources.cpus_per_worker=1"]
    config = ebclab.compose("moco", overrides=[*TINY, *elastic])
    fault = Fault(run, 24, lambda: machines.kill(leaving))
    fault.during(lambda: pretrain_run(config, tmp_path))
    finish(fault, record_property, "a node killed during pretraining; none comes", "the curve within the seeds' spread")
    assert_whole(run, fault)
    (change,) = records(run, event="ranks_changed")
    assert (change["before"], change["now"]) == (2, 1)
    alone = [_seed(tmp_path, seed) for seed in range(4)]
    for metric in ("info_nce", "holdout_knn"):
        curve, *others = (_curve(each, metric) for each in (run, *alone))
        spread = max(max(at_epoch) - min(at_epoch) for at_epoch in zip(*others, strict=True))
        assert max(abs(one - other) for one, other in zip(curve, others[0], strict=True)) <= spread, metric


def _seed(runs: Path, seed: int) -> Path:
    """Return the run of a seed that one process trained, undisturbed."""
    config = ebclab.compose("moco", overrides=[*TINY, "resources.threads=1", f"seed={seed}"])
    return ebclab.pretrain(config, runs=runs, name=f"seed-{seed}", display=Listener()).path


def _curve(run: Path, metric: str) -> list[float]:
    """Return the last value that each epoch has of a metric."""
    found = {-(-r["step"] // STEPS_AN_EPOCH): r[metric] for r in records(run) if metric in r}
    return [found[epoch] for epoch in range(1, STEPS // STEPS_AN_EPOCH + 1)]
