"""`ebclab cluster watch`: what it tells the head and the user; Ray's own part is played here, and is real elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated import autoscaler_pb2, gcs_pb2
from ray.exceptions import RaySystemError

from ebclab.cli import main
from ebclab.cluster import spot as cluster_watch
from ebclab.errors import EbclabError, UserError
from ebclab.storage.object_store import COPIES

HEAD = "10.0.0.1:6379"
ALIVE, DEAD = gcs_pb2.GcsNodeInfo.ALIVE, gcs_pb2.GcsNodeInfo.DEAD  # type: ignore[attr-defined]
NODES = {
    bytes([1]): SimpleNamespace(node_manager_address="10.0.0.1", state=ALIVE),
    bytes([2]): SimpleNamespace(node_manager_address="10.0.0.2", state=DEAD),
    bytes([3]): SimpleNamespace(node_manager_address="10.0.0.2", state=ALIVE),
    bytes([4]): SimpleNamespace(node_manager_address="10.0.0.3", state=ALIVE),
}
OLDER = """
import signal, sys, time
from ebclab.cluster.spot import _sole_watcher
if sys.argv[1:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with _sole_watcher():
    print("in place", flush=True)
    time.sleep(600)
"""


class Gcs:
    """The head, as Ray's client shows it; ``fails`` is raised by its next calls, the first of them first."""

    def __init__(self) -> None:
        self.drained: list[tuple[str, int, str, int]] = []
        self.fails: list[Exception] = []
        self.takes = (True, "")

    def __call__(self, address: str) -> Gcs:
        assert address == HEAD
        return self

    def get_all_node_info(self, timeout: float) -> dict[bytes, Any]:
        if self.fails:
            raise self.fails.pop(0)
        return NODES

    def drain_node(self, node: str, reason: int, text: str, deadline: int, timeout: float) -> tuple[bool, str]:
        self.drained.append((node, reason, text, deadline))
        return self.takes


@pytest.fixture
def gcs(metadata: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gcs:
    """The head of a cluster, on this machine of a cloud's."""
    made = Gcs()
    monkeypatch.setattr(cluster_watch, "GcsClient", made)
    monkeypatch.setattr(cluster_watch, "require_answer", lambda address, discovered: None)
    monkeypatch.setattr(cluster_watch, "head_of_this_machine", lambda remedy: HEAD)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv(COPIES, str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))  # without a token
    for name, value in metadata.variables().items():
        monkeypatch.setenv(name, value)
    return made


def test_the_machines_node_alone_is_drained_until_the_clouds_deadline(gcs: Gcs, metadata: Any) -> None:
    said: list[str] = []
    ends = metadata.announce(97)
    cluster_watch.watch(said.append, "10.0.0.2")
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")  # type: ignore[attr-defined]
    assert gcs.drained == [("03", reason, "Amazon will terminate this machine", int(ends.timestamp() * 1000))]
    assert said == [
        "watching for Amazon's notice to take 10.0.0.2 away",
        f"Amazon will terminate this machine at {ends.isoformat()}: node 03 drains, what trains there saves",
    ]


def test_a_notice_that_is_heard_late_still_gives_what_trains_some_seconds(gcs: Gcs, metadata: Any) -> None:
    metadata.announce(-60)
    cluster_watch.watch(lambda line: None, "10.0.0.2")
    ((*_, deadline),) = gcs.drained
    assert deadline / 1000 == pytest.approx(time.time() + 5, abs=3)


def test_a_head_that_is_away_at_the_notice_is_asked_again_and_that_is_said_once(gcs: Gcs, metadata: Any) -> None:
    said: list[str] = []
    metadata.announce(60)
    gcs.fails = [RaySystemError("no\nanswer"), UserError("resources.address: no cluster answers")]
    cluster_watch.watch(said.append, "10.0.0.2")
    assert len(gcs.drained) == 1
    assert [line for line in said if line.endswith("trying again")] == [
        "the head does not answer, got System error: no answer; trying again"
    ]


def test_a_head_that_stays_away_or_does_not_drain_is_one_sentence(gcs, metadata, monkeypatch):
    metadata.announce(60)
    gcs.takes = (False, "busy")
    with pytest.raises(EbclabError, match=f"^the head at {HEAD} does not drain node 03, got busy$"):
        cluster_watch.watch(lambda line: None, "10.0.0.2")
    monkeypatch.setattr(cluster_watch, "_START_SECONDS", -1.0)
    gcs.fails = [RaySystemError("no answer")]
    with pytest.raises(EbclabError, match=r"^the head does not answer, got System error: no answer$"):
        cluster_watch.watch(lambda line: None, "10.0.0.2")


def test_an_address_without_a_node_is_told_with_those_there_are(gcs, monkeypatch, capsys):
    monkeypatch.setattr(cluster_watch, "_START_SECONDS", -1.0)
    assert main(["cluster", "watch", "--node-ip-address", "10.0.0.9"]) == 2
    assert capsys.readouterr().err == (
        "error: no node at 10.0.0.9, the cluster at 10.0.0.1:6379 has 10.0.0.1, 10.0.0.2, 10.0.0.3; "
        "name this one's: --node-ip-address\n"
    )


def test_a_machine_bought_on_demand_is_not_watched(gcs: Gcs, metadata: Any, capsys: pytest.CaptureFixture[str]) -> None:
    metadata.facts["instance-life-cycle"] = "on-demand"
    assert main(["cluster", "watch", "--node-ip-address", "10.0.0.2"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(" Amazon does not take this machine away for others; there is nothing to watch\n")
    assert gcs.drained == []


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that starts a process with the place of a watcher."""
    monkeypatch.setenv(COPIES, str(tmp_path))
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-c", OLDER, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "in place\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_watcher_takes_the_place_of_the_first(older: Callable[..., Any], tmp_path: Path) -> None:
    first = older()
    with cluster_watch._sole_watcher():
        assert first.wait(timeout=60) == -signal.SIGTERM
        (place,) = tmp_path.glob("watch-*")
        assert place.read_text() == str(os.getpid())


def test_a_first_watcher_that_does_not_end_is_named(older: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = older("stay")
    monkeypatch.setattr(cluster_watch, "_END_SECONDS", 0.5)
    with (
        pytest.raises(UserError, match=f"does not end, got process {first.pid}; end it first"),
        cluster_watch._sole_watcher(),
    ):
        pytest.fail("two watchers")
    assert first.poll() is None
