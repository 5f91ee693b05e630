"""Machines that die, are taken away or run full, and what that costs a run: for the tests of faults.

Every machine is a raylet of its own with its own workers (``ray.cluster_utils.Cluster``). Each test tells how many
steps were trained twice and how long it took to get going again; ``benchmarks/faults.py`` makes a table of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ray_starts import one_start_at_a_time
from run_files import last_step, records
from tests.support.waiting import until

import ebclab
from ebclab.runs.checkpoint import newest_step
from ebclab.training.display import Listener

MARKS = [
    pytest.mark.cluster,
    pytest.mark.fault,
    pytest.mark.filterwarnings("ignore"),  # a second instance of Ray in this process
]

STEPS_AN_EPOCH, STEPS = 9, 108
Record = Callable[[str, object], None]

WATCHED = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 200}
"""How often a head asks whether a machine lives: Ray asks every 3 s, and gives it up after five answers that miss."""


class Machines:
    """A cluster of a head without CPUs, and workers with one each.

    Args:
        full_waits: Wait as long as users do.

    Attributes:
        cluster: Ray's own.
    """

    def __init__(self, full_waits: bool) -> None:
        from ebclab.cluster.switches import set_ray_switches

        set_ray_switches()
        import ray
        from ray.cluster_utils import Cluster

        quiet = {"include_dashboard": False, "include_log_monitor": False}
        head = {"num_cpus": 0, **quiet, "_system_config": {} if full_waits else WATCHED}
        with one_start_at_a_time():
            self.cluster = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    def have(self, count: int) -> list[Any]:
        """Return as many machines, some perhaps of an earlier test, once all their CPUs can be had."""
        import ray

        there = [node for node in self.cluster.list_all_nodes() if node is not self.cluster.head_node]
        for node in there[count:]:
            self.kill(node)
        made = there[:count] + [self.add() for _ in range(count - len(there))]
        until(lambda: ray.available_resources().get("CPU", 0) == count, 120, "CPUs are not given back")
        return made

    def add(self) -> Any:
        """Add a machine, and wait until its CPU can be had."""
        with one_start_at_a_time():
            node = self.cluster.add_node(num_cpus=1)
            self.cluster.wait_for_nodes()
        return node

    def kill(self, node: Any) -> None:
        """Switch a machine off: its raylet and its workers die at once."""
        self.cluster.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        """Switch everything off."""
        import ray

        ray.shutdown()
        self.cluster.shutdown()


def pretrain_run(config: Any, runs: Path) -> Any:
    """Train the run ``run`` of the folder ``runs`` and show nothing."""
    return ebclab.pretrain(config, runs=runs, name="run", display=Listener())


def resumes(run: Path) -> list[int]:
    """Return the steps from which a run went on."""
    return [record["step"] for record in records(run, event="resumed")]


class Fault:
    """A fault of a run at a step, and how long the run needs to get beyond the step from which it resumes.

    Attributes:
        seconds: From the fault, or from ``begins`` when that was called later, until a step after the resumed one.
        lost: Steps that were trained and had to be trained again.
        saved: The newest checkpoint's step when it happened.
    """

    def __init__(self, run: Path, step: int, happen: Callable[[], None]) -> None:
        self._run, self._step, self._happen = run, step, happen
        self._began, self.seconds, self.lost, self.saved = 0.0, 0.0, 0, 0

    def begins(self) -> None:
        """Count seconds from now."""
        self._began = time.monotonic()

    def during(self, train: Callable[[], Any]) -> Any:
        """Let it happen while ``train`` is at work in a thread, since machines can be added by the main thread only."""
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(train)
            until(lambda: last_step(self._run) >= self._step or training.done())
            assert not training.done(), training.result()
            self.saved, before = newest_step(self._run / "checkpoints"), len(resumes(self._run))
            self.begins()
            self._happen()
            self.wait(before, training.done)
            return training.result(timeout=600)

    def wait(self, before: int, over: Callable[[], bool]) -> None:
        """Wait until the run has resumed more often than ``before`` and has trained on since."""
        until(lambda: len(resumes(self._run)) > before or over())
        assert len(resumes(self._run)) > before, "the run ended without having been disturbed"
        resumed = records(self._run, event="resumed")[-1]
        until(lambda: last_step(self._run) > resumed["step"] or over())
        self.seconds, self.lost = time.monotonic() - self._began, resumed["reached"] - resumed["step"]


def finish(fault: Fault, record: Record, name: str, result: str = "the same bits") -> None:
    """Record what a fault cost."""
    for key, value in (("fault", name), ("steps_lost", fault.lost), ("seconds", round(fault.seconds, 1))):
        record(key, value)
    record("result", result)


def assert_whole(run: Path, fault: Fault, at_most: int = STEPS_AN_EPOCH) -> None:
    """Assert what the log tells: one fault, nothing repeated that had been saved, each step and epoch measured once."""
    (resumed,) = resumes(run)
    assert fault.saved <= resumed
    assert 0 <= fault.lost <= at_most
    assert [record["step"] for record in records(run, kind="train")] == list(range(1, STEPS + 1))
    epochs = [record["step"] for record in records(run, kind="epoch")]
    assert epochs == list(range(STEPS_AN_EPOCH, STEPS + 1, STEPS_AN_EPOCH))
