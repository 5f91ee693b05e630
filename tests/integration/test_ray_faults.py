"""Machines that go, are taken away, run full or come back: nothing is lost but what came after the last checkpoint.

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
from safetensors.torch import load_file

import ebclab
from ebclab.errors import UserError
from ebclab.sweeps.limits import Limits
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.space import parse_space
from ebclab.training.display import SilentDisplay

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # a second instance of Ray in this process
]

TINY = ["data.train_limit=640", "training.batch_size=64", "training.log_every=1", "training.epochs=6"]
STEPS_AN_EPOCH = 9
Record = Callable[[str, object], None]


class Machines:
    """A cluster of a head without CPUs, and workers with one each.

    Attributes:
        cluster: Ray's own.
    """

    def __init__(self) -> None:
        from ebclab.training.ray_switches import set_ray_switches

        set_ray_switches()
        import ray
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    def add(self) -> Any:
        """Add a machine, and wait until its CPU can be had."""
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
def machines() -> Iterator[Machines]:
    """Two machines with a CPU each."""
    made = Machines()
    made.add()
    yield made
    made.end()


def _config(workers: int = 2) -> Any:
    return ebclab.compose("moco", overrides=[*TINY, f"resources.workers={workers}", "resources.cpus_per_worker=1"])


def _pretrain(config: Any, runs: Path) -> Any:
    return ebclab.pretrain(config, runs=runs, name="run", display=SilentDisplay())


def _records(run: Path) -> list[dict[str, Any]]:
    log = run / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _last_step(run: Path) -> int:
    return max((record["step"] for record in _records(run) if record["kind"] == "train"), default=0)


def _resumes(run: Path) -> list[int]:
    return [record["step"] for record in _records(run) if record.get("event") == "resumed"]


def _until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


class Fault:
    """Something that happens to a run at a step, and how long the run needs to get beyond that step again."""

    def __init__(self, run: Path, step: int, happen: Callable[[], None]) -> None:
        self._run, self._step, self._happen = run, step, happen
        self.seconds, self.lost = 0.0, 0

    def during(self, train: Callable[[], Any]) -> Any:
        """Let it happen while ``train`` is at work in a thread, since machines can be added by the main thread only."""
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(train)
            _until(lambda: _last_step(self._run) >= self._step or training.done())
            assert not training.done(), training.result()
            self._happen()
            reached, started = _last_step(self._run), time.monotonic()
            _until(lambda: len(_resumes(self._run)) > 0 or training.done())
            assert not training.done(), training.result()
            resumed = _resumes(self._run)[-1]
            _until(lambda: _last_step(self._run) > resumed)
            self.seconds, self.lost = time.monotonic() - started, reached - resumed
            return training.result(timeout=300)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The final weights of two workers that nothing happened to."""
    made, runs = Machines(), tmp_path_factory.mktemp("undisturbed")
    made.add()
    made.add()
    ebclab.pretrain(_config(), runs=runs, name="run", display=SilentDisplay())
    made.end()
    return _weights(runs / "run")


def _weights(run: Path) -> dict[str, torch.Tensor]:
    newest = sorted((run / "checkpoints").glob("last-*"))[-1]
    return load_file(newest / "model.safetensors")


def _same_bits(run: Path, wanted: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, wanted[name]) for name, tensor in _weights(run).items())


def _finish(fault: Fault, record: Record, name: str) -> None:
    record("fault", name)
    record("steps_lost", fault.lost)
    record("seconds", round(fault.seconds, 1))


def test_a_machine_that_dies_costs_the_steps_since_the_last_checkpoint(
    machines: Machines, undisturbed: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    leaving = machines.add()

    def die() -> None:
        machines.kill(leaving)
        machines.add()

    fault = Fault(tmp_path / "run", 24, die)
    result = fault.during(lambda: _pretrain(_config(), tmp_path)).result
    _finish(fault, record_property, "a machine dies, another one comes")
    assert _resumes(tmp_path / "run") == [18]
    assert fault.lost < 2 * STEPS_AN_EPOCH
    assert result["steps"] == 54
    assert _same_bits(tmp_path / "run", undisturbed)


def test_on_notice_the_workers_save_first_and_next_to_nothing_is_trained_twice(
    machines: Machines, undisturbed: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    leaving, run = machines.add(), tmp_path / "run"

    def saved() -> list[int]:
        return [record["step"] for record in _records(run) if record.get("event") == "saved_early"]

    def take_away() -> None:
        machines.drain(leaving, 30)
        _until(lambda: len(saved()) > 0)
        machines.kill(leaving)
        machines.add()

    fault = Fault(run, 12, take_away)
    config = ebclab.compose(
        "moco", overrides=[*TINY, "training.checkpoint_every=100", "resources.workers=2", "resources.cpus_per_worker=1"]
    )
    result = fault.during(lambda: _pretrain(config, tmp_path)).result
    _finish(fault, record_property, "a machine is taken away after a notice")
    assert _resumes(run)[0] == saved()[0]
    assert result["steps"] == 54
    assert _same_bits(run, undisturbed)


def test_a_sweep_goes_on_when_the_machine_of_a_trial_dies(
    machines: Machines, tmp_path: Path, record_property: Record
) -> None:
    space = parse_space({"parameters": {"optimizer.learning_rate": {"loguniform": [1e-4, 1e-1]}}}, "test")
    config = ebclab.compose("simclr", overrides=[*TINY, "optimizer.name=adam", "optimizer.learning_rate=0.003"])
    plan = ebclab.make_plan(config, space=space, search="random", scheduler="none", trials=3, top=0)

    class Silent(SilentDisplay):
        def start(self, name: str, objective: str, num_trials: int) -> None: ...  # type: ignore[override]

        def show(self, trials: Any) -> None: ...

    def sweep(name: str) -> dict[str, Any]:
        ebclab.sweep(plan, sweeps=tmp_path, name=name, limits=Limits(concurrent=1), display=Silent())
        trials = SweepLog(tmp_path / name / "trials.jsonl").trials
        return {each: (t.state, {e: p.objective for e, p in t.curve.items()}) for each, t in trials.items()}

    wanted = sweep("undisturbed")
    (only,) = [node for node in machines.cluster.list_all_nodes() if node is not machines.cluster.head_node]

    def die() -> None:
        machines.kill(only)
        machines.add()

    fault = Fault(tmp_path / "disturbed" / "trials" / "0001", 24, die)
    assert fault.during(lambda: sweep("disturbed")) == wanted
    _finish(fault, record_property, "the machine of a trial of a sweep dies")


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
            _until(lambda: _last_step(run) >= 20)
            free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
            (small / "ballast").write_bytes(bytes(free - 200_000))

        thread = threading.Thread(target=fill)
        thread.start()
        with pytest.raises(UserError, match="the disk is full; the checkpoint before it, last-0000000018, is kept"):
            ebclab.pretrain(_config(), runs=small, name="run", display=SilentDisplay())
        thread.join()
        reached = _last_step(run)
        (small / "ballast").unlink()
        fault = Fault(run, 0, lambda: None)
        fault.during(lambda: _pretrain(_config(), small))
        _finish(fault, record_property, "the disk is full; room is made, the same command is given again")
        record_property("steps_lost", reached - _resumes(run)[0])
        assert _resumes(run) == [18]
        assert _same_bits(run, undisturbed)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_head_that_dies_with_everything_is_replaced_and_the_store_has_the_rest(
    store: Any, undisturbed: dict[str, torch.Tensor], tmp_path: Path, record_property: Record
) -> None:
    from ebclab.storage.home import COPIES, home_at
    from ebclab.storage.mirror import Mirror
    from ebclab.storage.store import Store

    address = "s3://sets/faults/run"
    home = home_at(address)
    assert home is not None
    command = ["pretrain", "moco", "--name", "run", "--runs", "s3://sets/faults", "--workers", "2", "--epochs", "6"]
    command += [part for text in (*TINY, "resources.cpus_per_worker=1") for part in ("--set", text)]

    def start(machine: str) -> subprocess.Popen[bytes]:
        variables = {**os.environ, "OMP_NUM_THREADS": "1", COPIES: str(tmp_path / machine), "RAY_ADDRESS": ""}
        program = [*_python(), *command]
        return subprocess.Popen(program, env=variables, stderr=subprocess.DEVNULL, start_new_session=True)

    first = start("one")
    _until(lambda: "checkpoints/last-0000000018/manifest.json" in Store(home).names() or first.poll() is not None)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    fault_began = time.monotonic()
    second = start("two")
    Path(tmp_path / "seen").mkdir()

    def log() -> list[dict[str, Any]]:
        lines = Store(home).read("metrics.jsonl").decode().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    _until(lambda: any(record.get("event") == "resumed" for record in log()) or second.poll() is not None)
    seconds = time.monotonic() - fault_began
    assert second.wait(timeout=240) == 0
    (resumed,) = [record for record in log() if record.get("event") == "resumed"]
    assert resumed["step"] >= 18
    Mirror(home).pull(("last",))
    assert _same_bits(home.copy, undisturbed)
    record_property("fault", "the head dies with all that ran on it; the same command elsewhere, from the store")
    record_property("steps_lost", f"{resumed['dropped_records']} of those the store knew")
    record_property("seconds", round(seconds, 1))


def _python() -> list[str]:
    import sys

    return [sys.executable, "-m", "ebclab"]
