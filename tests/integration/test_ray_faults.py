"""Machines and processes that die, are taken away or run full: nothing is lost but what came after the last checkpoint.

Every machine is a raylet of its own with its own workers (``ray.cluster_utils.Cluster``). Each test tells how many
steps were trained twice and how long it took to get going again; ``benchmarks/faults.py`` makes a table of that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import two_ranks
from ray_starts import one_start_at_a_time
from run_files import last_step, records, same_bits
from tests.support.waiting import until
from two_ranks import TINY, two_workers

import ebclab
from ebclab.errors import UserError
from ebclab.runs.checkpoint import newest_step
from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.space.space import parse_space
from ebclab.training.listener import Listener
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Progress

pytestmark = [
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

    def add(self) -> Any:
        """Add a machine, and wait until its CPU can be had."""
        with one_start_at_a_time():
            node = self.cluster.add_node(num_cpus=1)
            self.cluster.wait_for_nodes()
        return node

    def kill(self, node: Any) -> None:
        """Switch a machine off: its raylet and its workers die at once."""
        self.cluster.remove_node(node, allow_graceful=False)

    def drain(self, node: Any, seconds: float) -> None:
        """Put a machine on notice."""
        import ray
        from ray.core.generated import autoscaler_pb2

        reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        client = ray._raylet.GcsClient(address=self.cluster.address)
        taken = client.drain_node(node.node_id, reason, "", int((time.time() + seconds) * 1000))
        assert taken[0], taken

    def end(self) -> None:
        """Switch everything off."""
        import ray

        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture
def machines(full_waits: bool) -> Iterator[Machines]:
    """A cluster of this test's own: on a shared one, elastic workers start before a new machine is seen."""
    made = Machines(full_waits)
    made.add()
    yield made
    made.end()


def _pretrain(config: Any, runs: Path) -> Any:
    return ebclab.pretrain(config, runs=runs, name="run", display=Listener())


def _resumes(run: Path) -> list[int]:
    return [record["step"] for record in records(run, event="resumed")]


class Fault:
    """Something that happens to a run at a step, and how long the run needs to get beyond where it goes on.

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
            self.saved, before = newest_step(self._run / "checkpoints"), len(_resumes(self._run))
            self.begins()
            self._happen()
            self.wait(before, training.done)
            return training.result(timeout=600)

    def wait(self, before: int, over: Callable[[], bool]) -> None:
        """Wait until the run has resumed more often than ``before`` and has trained on since."""
        until(lambda: len(_resumes(self._run)) > before or over())
        assert len(_resumes(self._run)) > before, "the run ended without having been disturbed"
        resumed = records(self._run, event="resumed")[-1]
        until(lambda: last_step(self._run) > resumed["step"] or over())
        self.seconds, self.lost = time.monotonic() - self._began, resumed["reached"] - resumed["step"]


@pytest.fixture(scope="module")
def undisturbed(run_ranks: Callable[[str, int], list[Any]]) -> dict[str, torch.Tensor]:
    """The final weights of two workers that nothing happened to: two ranks without Ray, who train the same bits."""
    weights: dict[str, torch.Tensor] = run_ranks(two_ranks.__file__, 2)[0]
    return weights


def _finish(fault: Fault, record: Record, name: str, result: str = "the same bits") -> None:
    for key, value in (("fault", name), ("steps_lost", fault.lost), ("seconds", round(fault.seconds, 1))):
        record(key, value)
    record("result", result)


def _assert_whole(run: Path, fault: Fault, at_most: int = STEPS_AN_EPOCH) -> None:
    """What the log tells: one fault, nothing repeated that had been saved, each step and epoch measured once."""
    (resumed,) = _resumes(run)
    assert fault.saved <= resumed
    assert 0 <= fault.lost <= at_most
    assert [record["step"] for record in records(run, kind="train")] == list(range(1, STEPS + 1))
    epochs = [record["step"] for record in records(run, kind="epoch")]
    assert epochs == list(range(STEPS_AN_EPOCH, STEPS + 1, STEPS_AN_EPOCH))


def test_a_sweep_goes_on_when_the_machine_of_a_trial_dies(
    machines: Machines, tmp_path: Path, record_property: Record
) -> None:
    space = parse_space({"parameters": {"optimizer.learning_rate": {"loguniform": [1e-4, 1e-1]}}}, "test")
    config = ebclab.compose("simclr", overrides=[*TINY, "optimizer.name=adam", "optimizer.learning_rate=0.003"])
    plan = ebclab.make_plan(
        config, ebclab.SweepRequest(space=space, search="random", scheduler="none", trials=3, top=0)
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

    wanted = sweep("undisturbed")
    (only,) = [node for node in machines.cluster.list_all_nodes() if node is not machines.cluster.head_node]

    def die() -> None:
        machines.kill(only)
        dead.touch()
        machines.add()

    fault = Fault(trial, 24, die)
    assert fault.during(lambda: sweep("disturbed")) == wanted
    _finish(fault, record_property, "a node killed during a sweep; another one comes", "the same curves and states")
    _assert_whole(trial, fault)
    told = [json.loads(line) for line in (tmp_path / "disturbed" / "trials.jsonl").read_text().splitlines()]
    assert [record["trial"] for record in told if record["event"] == "restarted"] == ["0001"]


def test_a_machine_that_dies_costs_the_steps_since_the_last_checkpoint(
    machines: Machines, undisturbed: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    leaving = machines.add()

    def die() -> None:
        machines.kill(leaving)
        machines.add()

    fault = Fault(tmp_path / "run", 24, die)
    result = fault.during(lambda: _pretrain(two_workers(), tmp_path)).result
    _finish(fault, record_property, "a node killed during pretraining; another one comes")
    _assert_whole(tmp_path / "run", fault)
    assert result["steps"] == STEPS
    assert same_bits(tmp_path / "run", undisturbed)


def test_a_worker_that_is_killed_costs_the_steps_since_the_last_checkpoint(
    machines: Machines, undisturbed: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    machines.add()
    run = tmp_path / "run"

    def die() -> None:
        os.kill(json.loads((run / ".ray" / "worker-1.json").read_text())["pid"], signal.SIGKILL)

    fault = Fault(run, 24, die)
    fault.during(lambda: _pretrain(two_workers(), tmp_path))
    _finish(fault, record_property, "a worker killed")
    _assert_whole(run, fault)
    assert same_bits(run, undisturbed)


def test_a_machine_that_dies_and_is_not_replaced_leaves_a_run_with_the_curve_that_it_would_have_had(
    machines: Machines, full_waits: bool, tmp_path: Path, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not full_waits:
        monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "10")  # for as many workers as before; Ray's is 60
    leaving, run = machines.add(), tmp_path / "run"
    elastic = ["resources.workers=1", "resources.max_workers=2", "resources.cpus_per_worker=1"]
    config = ebclab.compose("moco", overrides=[*TINY, *elastic])
    fault = Fault(run, 24, lambda: machines.kill(leaving))
    fault.during(lambda: _pretrain(config, tmp_path))
    _finish(
        fault, record_property, "a node killed during pretraining; none comes", "the curve within the seeds' spread"
    )
    _assert_whole(run, fault)
    (change,) = records(run, event="ranks_changed")
    assert (change["before"], change["now"]) == (2, 1)
    alone = [_seed(tmp_path, seed) for seed in range(4)]
    for metric in ("info_nce", "holdout_knn"):
        for epoch, value in enumerate(_curve(run, metric)):
            others = [_curve(each, metric)[epoch] for each in alone]
            assert abs(value - others[0]) <= max(others) - min(others), (metric, epoch)


def _seed(runs: Path, seed: int) -> Path:
    """Return the run of a seed that one process trained, undisturbed."""
    config = ebclab.compose("moco", overrides=[*TINY, "resources.threads=1", f"seed={seed}"])
    return ebclab.pretrain(config, runs=runs, name=f"seed-{seed}", display=Listener()).path


def _curve(run: Path, metric: str) -> list[float]:
    """Return the last value that each epoch has of a metric."""
    found = {-(-r["step"] // STEPS_AN_EPOCH): r[metric] for r in records(run) if metric in r}
    return [found[epoch] for epoch in range(1, STEPS // STEPS_AN_EPOCH + 1)]


def test_a_full_disk_ends_the_run_with_a_sentence_and_costs_the_steps_since_the_last_checkpoint(
    machines: Machines, undisturbed: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    if os.geteuid():
        pytest.skip("only root can make a small disk")
    machines.add()
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
        fault.during(lambda: _pretrain(two_workers(), small))
        _finish(fault, record_property, "disk full on one node; room is made, the same command again")
        _assert_whole(run, fault)
        assert same_bits(run, undisturbed)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
