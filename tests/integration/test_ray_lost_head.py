"""A command's own head that dies with its disk: the same command goes on elsewhere, from a store.

``tests/support/faults.py`` says what is recorded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from faults import MARKS, STEPS_AN_EPOCH, Fault, Record, assert_whole, finish
from forked_workers import environment_without
from ray_starts import one_start_at_a_time
from run_files import last_step, records, same_bits
from tests.support.waiting import until
from two_ranks import TINY

pytestmark = MARKS


def _logs(machine: Path) -> list[Path]:
    """Return the logs of the run of rank 0, on a machine's disk."""
    return [log for log in machine.rglob("metrics.jsonl") if "worker" in log.parts]


def test_a_head_that_dies_with_everything_is_replaced_and_the_store_has_the_rest(
    store: Any, undisturbed_weights: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    from ebclab.storage.mirror import Mirror
    from ebclab.storage.object_store import COPIES, Store, remote_at

    address = "s3://sets/faults/run"
    remote = remote_at(address)
    assert remote is not None
    command = ["pretrain", "moco", "--name", "run", "--runs", "s3://sets/faults", "--workers", "2", "--epochs", "12"]
    command += [part for text in (*TINY, "resources.cpus_per_worker=1") for part in ("--set", text)]

    def start(machine: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the command, and wait for the first record of its run: then its Ray is up."""
        own = {"OMP_NUM_THREADS": "1", COPIES: str(tmp_path / machine), "RAY_ADDRESS": ""}
        program = [sys.executable, "-m", "ebclab", *command]
        with one_start_at_a_time():
            with said(machine).open("wb") as log:
                started = subprocess.Popen(program, env={**environment, **own}, stderr=log, start_new_session=True)
            until(lambda: _logs(tmp_path / machine) or started.poll() is not None)
        return started

    def said(machine: str) -> Path:
        return tmp_path / f"{machine}.log"

    def saved() -> int:
        """Return the step of the newest whole checkpoint in the store; each one replaces the one before."""
        whole = [name for name in Store(remote).names() if "/last-" in name and name.endswith("manifest.json")]
        return max((int(name[17:27]) for name in whole), default=0)

    first = start("one", environment_without())
    until(lambda: saved() >= 2 * STEPS_AN_EPOCH or first.poll() is not None)
    assert first.poll() is None, said("one").read_text()
    (lost,) = [log.parent for log in _logs(tmp_path / "one")]
    run = tmp_path / "two" / lost.relative_to(tmp_path / "one")
    fault = Fault(run, 0, lambda: None)
    os.killpg(first.pid, signal.SIGKILL)
    fault.begins()
    first.wait()
    fault.saved = saved()
    second = start("two", os.environ)
    fault.wait(0, lambda: second.poll() is not None)
    fault.lost += last_step(lost) - records(run, event="resumed")[0]["reached"]  # the disk had more than the store knew
    assert second.wait(timeout=600) == 0, said("two").read_text()
    Mirror(remote).pull(("last",))
    finish(fault, record_property, "the head lost with its disk; the same command elsewhere, from the store")
    assert_whole(remote.cache, fault)
    assert same_bits(remote.cache, undisturbed_weights)
