"""Trials whose machine dies, workers that are killed, disks that run full: nothing is lost but what came after the last
checkpoint. ``tests/support/faults.py`` says what is recorded.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import MARKS, Fault, Machines, Record, assert_whole, finish, pretrain_run
from run_files import last_step, same_bits
from tests.support.waiting import until
from two_ranks import TINY, two_workers

import ebclab
from ebclab.errors import UserError
from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.space.space import parse_space
from ebclab.training.display import Listener
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Progress

pytestmark = MARKS


def test_a_sweep_goes_on_when_the_machine_of_a_trial_dies(
    machines: Machines, tmp_path: Path, record_property: Record
) -> None:
    space = parse_space({"parameters": {"optimizer.learning_rate": {"loguniform": [1e-4, 1e-1]}}}, "test")
    config = ebclab.compose("simclr", overrides=[*TINY, "optimizer.name=adam", "optimizer.learning_rate=0.003"])
    plan = ebclab.make_plan(
        config, ebclab.SweepRequest(space=space, search="random", scheduler="none", trials=2, top=0)
    )
    trial, dead = tmp_path / "disturbed" / "trials" / "0001", tmp_path / "dead"

    class Waiting(Simclr):
        """Waits for the death of its machine: a trial takes a second, and would have ended before."""

        def after_step(self, progress: Progress) -> None:
            while progress.step == 30 and trial.exists() and not dead.exists():
                time.sleep(0.01)

    def sweep(name: str) -> dict[str, Any]:
        alone: dict[str, Any] = {"limits": Limits(concurrent=1), "display": SweepDisplay()}
        ebclab.sweep(plan, sweeps=tmp_path, name=name, method=Waiting, **alone)
        trials = SweepLog(tmp_path / name / "trials.jsonl").trials
        return {each: (t.state, {e: p.objective for e, p in t.curve.items()}) for each, t in trials.items()}

    (only,) = machines.have(1)
    wanted = sweep("undisturbed")

    def die() -> None:
        machines.kill(only)
        dead.touch()
        machines.add()

    fault = Fault(trial, 24, die)
    assert fault.during(lambda: sweep("disturbed")) == wanted
    finish(fault, record_property, "a node killed during a sweep; another one comes", "the same curves and states")
    assert_whole(trial, fault)
    told = [json.loads(line) for line in (tmp_path / "disturbed" / "trials.jsonl").read_text().splitlines()]
    assert [record["trial"] for record in told if record["event"] == "restarted"] == ["0001"]


def test_a_worker_that_is_killed_costs_the_steps_since_the_last_checkpoint(
    machines: Machines, undisturbed_weights: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    machines.have(2)
    run = tmp_path / "run"

    def die() -> None:
        os.kill(json.loads((run / ".ray" / "worker-1.json").read_text())["pid"], signal.SIGKILL)

    fault = Fault(run, 24, die)
    fault.during(lambda: pretrain_run(two_workers(), tmp_path))
    finish(fault, record_property, "a worker killed")
    assert_whole(run, fault)
    assert same_bits(run, undisturbed_weights)


def test_a_full_disk_ends_the_run_with_a_sentence_and_costs_the_steps_since_the_last_checkpoint(
    machines: Machines, undisturbed_weights: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    if os.geteuid():
        pytest.skip("only root can make a small disk")
    machines.have(2)
    small, run = tmp_path / "small", tmp_path / "small" / "run"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(small)], check=True)
    try:

        def fill() -> None:
            until(lambda: last_step(run) >= 20)
            free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
            (small / "ballast").write_bytes(bytes(free - 200_000))

        thread = threading.Thread(target=fill)
        thread.start()
        with pytest.raises(UserError, match=r"the disk is full; the checkpoint before it, last-00000000\d\d, is kept"):
            ebclab.pretrain(two_workers(), runs=small, name="run", display=Listener())
        thread.join()
        (small / "ballast").unlink()
        fault = Fault(run, 18, lambda: None)
        fault.during(lambda: pretrain_run(two_workers(), small))
        finish(fault, record_property, "disk full on one node; room is made, the same command again")
        assert_whole(run, fault)
        assert same_bits(run, undisturbed_weights)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
