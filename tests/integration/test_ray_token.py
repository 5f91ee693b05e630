"""A real head with a token, and a node beside it with another ebclab: who is let in, and what is left written down."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ray_starts import one_start_at_a_time, ray_folder, ray_started
from run_files import free_ports
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOKEN = "5ebc1ab0" * 8
RUN = [
    "pretrain simclr --recipe digits-demo --epochs 3 --workers 1 --set training.batch_size=32",
    "--set data.train_limit=64 --set resources.cpus_per_worker=1 --name run --runs",
]


@dataclass(frozen=True)
class Head:
    """A head on this machine.

    Attributes:
        address: Of its GCS.
        dashboard: URL of its dashboard.
        folder: Where Ray writes its logs.
        home: A home whose ~/.ray/auth_token is the head's.
    """

    address: str
    dashboard: str
    folder: Path
    home: Path

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a user of this cluster."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        switches = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
        switches["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] = "0"  # at the end nobody waits for what others left running
        switches["RAY_worker_niceness"] = "0"
        return {**kept, **switches, "HOME": str(self.home), "RAY_AUTH_MODE": "token", **variables}


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with ray_folder() as folder, ExitStack() as stack:
        home = folder / "home"
        (home / ".ray").mkdir(parents=True)
        (home / ".ray" / "auth_token").write_text(TOKEN)
        gcs, dashboard, client = free_ports(3)
        head = Head(f"127.0.0.1:{gcs}", f"http://127.0.0.1:{dashboard}", folder / "ray", home)
        arguments = (
            f"--head --block --num-cpus=1 --node-ip-address=127.0.0.1 --port={gcs} --ray-client-server-port={client}"
        )
        arguments += f" --dashboard-host=127.0.0.1 --dashboard-port={dashboard} --temp-dir={head.folder}"
        with one_start_at_a_time():
            stack.enter_context(ray_started(arguments, head.environment()))
            _wait_for(head)
        yield head


def _ask(url: str, token: str | None) -> tuple[int, bytes]:
    """Return the status and the content of an answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b""


def _wait_for(head: Head) -> None:
    def is_up() -> bool:
        with suppress(OSError):
            return _ask(f"{head.dashboard}/api/jobs/", TOKEN)[0] == 200
        return False

    until(is_up, 400, "the head did not come up", pause=1)


def _ebclab(head: Head, runs: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = head.environment(RAY_ADDRESS=head.address, **variables)
    command = [sys.executable, "-m", "ebclab", *" ".join(RUN).split(), str(runs)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=runs)


def test_the_job_port_answers_only_those_who_have_the_token_and_only_on_this_machine(head: Head) -> None:
    jobs = f"{head.dashboard}/api/jobs/"
    assert [_ask(jobs, token)[0] for token in (None, "f" * 64, TOKEN)] == [401, 403, 200]
    own = socket.gethostbyname(socket.gethostname())
    port = int(head.dashboard.rpartition(":")[2])
    if not own.startswith("127."):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((own, port), timeout=5)


def test_a_run_with_the_token_finishes_and_the_token_is_written_nowhere(head: Head, tmp_path: Path) -> None:
    finished = _ebclab(head, tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "run" / "result.json").exists()
    written = [path for folder in (tmp_path, head.folder) for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 20
    assert [path for path in written if TOKEN.encode() in path.read_bytes()] == []
    assert TOKEN not in finished.stdout + finished.stderr


def test_a_node_with_another_ebclab_is_named_with_both_before_anything_begins(head: Head, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for package in ("platform/ebclab", "methods/energy_contrast"):
        skip = shutil.ignore_patterns("__pycache__", "cluster_files", "search_spaces")
        shutil.copytree(ROOT / package, other / Path(package).name, ignore=skip)
    with (other / "ebclab" / "errors.py").open("a") as file:
        file.write("# an older wheel\n")
    runs = tmp_path / "runs"
    runs.mkdir()
    node = f"--block --num-cpus=1 --address={head.address}"
    with ray_started(node, head.environment(PYTHONPATH=str(other))):
        until(lambda: _nodes(head) >= 2, 400, "the node did not come up", pause=1)
        refused = _ebclab(head, runs)
    assert refused.returncode == 2
    (sentence,) = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert sentence.startswith("error: node ")
    assert sentence.count("ebclab 0.1.0 (") == 1
    assert sentence.endswith("where the command runs; install the same wheel and constraints.txt on every node")
    assert list(runs.iterdir()) == []


def _nodes(head: Head) -> int:
    """Return how many nodes are alive."""
    _, answer = _ask(f"{head.dashboard}/api/v0/nodes?limit=100", TOKEN)
    return sum(node["state"] == "ALIVE" for node in json.loads(answer)["data"]["result"]["result"])


def test_a_spot_machine_shows_the_token_unasked(head: Head, metadata: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "ebclab", "cluster", "watch"]
    own = {"RAY_ADDRESS": head.address, "EBCLAB_COPIES": str(tmp_path), **metadata.variables()}
    unasked = {name: value for name, value in head.environment(**own).items() if name != "RAY_AUTH_MODE"}
    with subprocess.Popen(command, env=unasked, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        assert "watching for Amazon's notice to take" in watcher.stdout.readline()
        watcher.terminate()


def test_a_sweep_begins_on_a_head_without_workers_that_was_told_of_them_and_waits_for_them(
    head: Head, tmp_path: Path
) -> None:
    """The fixture's head has one CPU; a trial of two threads needs a worker that joins after the sweep has begun."""
    space = tmp_path / "space.yaml"
    space.write_text("parameters:\n  method.temperature: {uniform: [0.1, 0.9]}\n")
    sweep = "sweep simclr --recipe digits-demo --epochs 3 --trials 1 --top 0 --set data.train_limit=64"
    sweep += f" --set training.batch_size=32 --set resources.threads=2 --space {space} --search random --name grown"
    command = [sys.executable, "-m", "ebclab"]
    start = [*command, *sweep.split(), "--sweeps", str(tmp_path)]
    user = head.environment(RAY_ADDRESS=head.address)
    refused = subprocess.run(start, env=user, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 2
    assert "a trial needs 2 CPUs, the cluster has 1" in refused.stderr
    tell = [*command, "cluster", "announce", "--most", "1", "--cpus", "2"]
    told = subprocess.run(tell, env=user, capture_output=True, text=True, timeout=300)
    assert told.stdout == f"notified the head at {head.address}: the cluster may grow to 3 CPUs and 0 GPUs\n", (
        told.stderr
    )
    with subprocess.Popen(start, env=user, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        log = tmp_path / "grown" / "trials.jsonl"
        until(log.exists, 400, "the sweep did not begin", pause=0.5)
        with ray_started(f"--block --num-cpus=2 --address={head.address}", head.environment()):
            assert running.wait(timeout=300) == 0
    assert (tmp_path / "grown" / "result.json").exists()
