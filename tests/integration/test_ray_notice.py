"""A cloud's notice that a machine will go, from its metadata service through `ebclab cluster watch` and Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from faults import MARKS, STEPS, Fault, Machines, Record, assert_whole, finish, pretrain_run, resumes
from run_files import records, same_bits
from tests.support.waiting import until
from two_ranks import TINY

import ebclab
from ebclab.storage.object_store import COPIES

pytestmark = MARKS

ADDRESS = "127.0.0.2"


def test_the_clouds_notice_has_the_workers_save_before_the_machine_goes(
    machines: Machines,
    undisturbed_weights: dict[str, torch.Tensor],
    metadata: Any,
    tmp_path: Path,
    record_property: Record,
) -> None:
    run, log = tmp_path / "run", tmp_path / "watch.log"
    machines.have(1)
    leaving = machines.cluster.add_node(num_cpus=1, node_ip_address=ADDRESS)
    machines.cluster.wait_for_nodes()
    own = {"RAY_ADDRESS": machines.cluster.address, COPIES: str(tmp_path / "copies"), **metadata.variables()}
    command = [sys.executable, "-W", "ignore", "-m", "ebclab", "cluster", "watch", "--node-ip-address", ADDRESS]
    with log.open("wb") as told:
        watcher = subprocess.Popen(command, env={**os.environ, **own}, stdout=told, stderr=told)

    def saved() -> list[int]:
        return [record["step"] for record in records(run, event="saved_early")]

    def take_away() -> None:
        metadata.announce(60)
        until(lambda: len(saved()) > 0)
        fault.begins()
        machines.kill(leaving)
        machines.add()

    try:
        until(lambda: "watching for Amazon's notice" in log.read_text() or watcher.poll() is not None)
        assert watcher.poll() is None, log.read_text()
        fault = Fault(run, 12, take_away)
        settings = ["training.checkpoint_every=100", "resources.workers=2", "resources.cpus_per_worker=1"]
        config = ebclab.compose("moco", overrides=[*TINY, *settings])
        result = fault.during(lambda: pretrain_run(config, tmp_path)).result
        assert watcher.wait(timeout=240) == 0, log.read_text()
    finally:
        watcher.kill()
        watcher.wait()
    finish(fault, record_property, "a preemption notice from the cloud, then the node is gone; another one comes")
    watching, drains = log.read_text().splitlines()
    assert watching.endswith(f"watching for Amazon's notice to take {ADDRESS} away")
    assert f"node {leaving.node_id[:6]} drains, what trains there saves" in drains
    assert resumes(run) == saved()
    assert_whole(run, fault, at_most=STEPS)  # what is trained between the notice and the end depends on the machine
    assert result["steps"] == STEPS
    assert same_bits(run, undisturbed_weights)
