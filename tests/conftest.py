"""Shared test set-up: tiers, one torch thread, ranks on gloo, one instance of Ray, a cloud's metadata service."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import forked_workers
import pytest
import torch
from ray_starts import one_start_at_a_time

from ebclab.errors import InterruptedRunError

RAYS_OWN = ("DeprecationWarning", "FutureWarning", "ResourceWarning")
"""Warnings that Ray raises in this process; they are not ours to mend."""

NEEDS = {"raylet": "ray", "gcs_server": "ray", "chromium": "browser", "sshd": "cluster"}
"""Programs, and the mark without which no test starts them in its own process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full-waits", action="store_true", help="wait in tests of faults as long as users do")


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, as must the programs that tests start: a shell's background and nohup have it ignored.

    Ray Train looks at its workers, which train for a second here, more often than once a second. Ray's workers get as
    much of a processor as other tests do: by default they wait for everybody else.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--full-waits"):
        os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.1")
        os.environ.setdefault("RAY_worker_niceness", "0")


@pytest.hookimpl(tryfirst=True)  # before fixtures start Ray
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the workers of Ray that tests start forked; begin each file with nothing for Python to collect.

    What the files before it have imported is kept out of its garbage collections: every run looks for garbage.
    """
    if item.path != _Now.file:
        _Now.file = item.path
        gc.collect()
        gc.freeze()
    if item.get_closest_marker("ray"):
        forked_workers.offer()
    else:
        forked_workers.withdraw()


@pytest.fixture(scope="session")
def full_waits(request: pytest.FixtureRequest) -> bool:
    """Whether Ray's patience and ours are what users have; otherwise tests shorten them."""
    return bool(request.config.getoption("--full-waits"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is there for the whole session, imported modules and the tests, out of Python's garbage collections."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests that use Ray: those of files ``test_ray_*`` and those that want the shared instance."""
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if item.path.name.startswith("test_ray_") or "cluster" in item.fixturenames:
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.timeout(900))  # on a busy machine a worker takes a minute to start
            for category in RAYS_OWN:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"))
            if "cluster" not in item.fixturenames and not {"slow", "cluster"} & marks:
                raise pytest.UsageError(f"{item.nodeid}: a test that does not use the shared instance of Ray is slow")


class _Now:
    """The test at work, and its file."""

    item: pytest.Item | None = None
    file: Path | None = None


def _refuse_to_start(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse a test the programs that its marks do not name."""
    if event != "subprocess.Popen" or _Now.item is None:
        return
    program = arguments[1] if isinstance(arguments[1], str) else os.fsdecode(arguments[1][0])
    mark = NEEDS.get(os.path.basename(program), "")
    if mark and _Now.item.get_closest_marker(mark) is None:
        raise RuntimeError(f"{_Now.item.nodeid} starts {program}, but is not marked {mark}")


sys.addaudithook(_refuse_to_start)


def _wait_for_no_disk(descriptor: int) -> None: ...


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note which test is at work, and give it one thread: commands that ran in this process took one for each core.

    It does not wait for the disk, since nobody cuts the power: tests of what is synced watch ``os.fsync`` themselves.
    """
    _Now.item = item
    torch.set_num_threads(1)
    try:
        with mock.patch.object(os, "fsync", _wait_for_no_disk):
            return (yield)
    finally:
        _Now.item = None


def pytest_exception_interact(node: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """End the session with a test whose run took Ctrl-C for its own; a test that sends a signal itself expects that."""
    if call.excinfo is not None and call.excinfo.errisinstance(InterruptedRunError):
        node.session.shouldstop = "interrupted"


@pytest.fixture(scope="session")
def _ray_head() -> Iterator[str]:
    """One instance of Ray with two CPUs for all tests of this process that need no other; its address."""
    from ebclab.cluster.switches import set_ray_switches

    set_ray_switches()
    from ray.cluster_utils import Cluster

    keep = {"num_workers_soft_limit": 6, "idle_worker_killing_time_threshold_ms": 60_000}  # what tasks have imported
    head: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 300 << 20, "_system_config": keep}
    head |= {"include_dashboard": False, "include_log_monitor": False}  # nobody looks at what workers print
    with one_start_at_a_time():
        made = Cluster(initialize_head=True, head_node_args=head)
    yield made.address
    made.shutdown()


@pytest.fixture(scope="module")
def cluster(_ray_head: str) -> Iterator[str]:
    """The shared instance of Ray, which this process has joined for the tests of one file; its address.

    Workers get what this process was told about stores before it joined.
    """
    import ray

    known = forked_workers.environment_without()
    told = {name: value for name, value in known.items() if name.startswith(("AWS_", "EBCLAB_"))}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address=_ray_head, runtime_env={"env_vars": told} if told else None, **quiet)
    yield _ray_head
    ray.shutdown()


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], list[Any]]]:
    """Yield a function that runs ``be_a_rank(rank, num_ranks)`` of a test file in as many processes on gloo."""
    script = Path(__file__).with_name("rank_process.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None

        def run(file: str, num_ranks: int) -> list[Any]:
            folder = tmp_path_factory.mktemp("ranks")
            print(json.dumps([file, num_ranks, str(folder)]), file=parent.stdin, flush=True)
            assert json.loads(parent.stdout.readline()) == [0] * num_ranks  # their exit codes
            return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(num_ranks)]

        yield run


class Metadata:
    """The metadata service of a cloud on loopback, as its documentation describes it.

    Attributes:
        cloud: "amazon" or "google".
        facts: What it knows, by name; any other name is 404.
        status: Answers everything with this status when it is not 0.
        tokens: Those that Amazon's service takes.
        asked: Method, path and headers of every question.
        silent: Cleared, it takes questions and does not answer them.
    """

    def __init__(self) -> None:
        self.cloud, self.status = "amazon", 0
        self.facts = {"instance-life-cycle": "spot", "scheduling/preemptible": "TRUE", "preempted": "FALSE"}
        self.tokens: set[str] = set()
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.silent = threading.Event()
        self.silent.set()
        self._open(0)

    def announce(self, seconds: float, action: str = "terminate") -> datetime:
        """Put the machine on notice; return when it ends."""
        ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        self.facts["spot/instance-action"] = json.dumps({"action": action, "time": f"{ends:%Y-%m-%dT%H:%M:%SZ}"})
        self.facts["preempted"] = "TRUE"
        return ends

    def variables(self, prefix: str = "") -> dict[str, str]:
        """Return the environment variables that name this server, for both clouds."""
        self.prefix = prefix
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{self.port}{prefix}",
            "GCE_METADATA_HOST": f"127.0.0.1:{self.port}",
        }

    def leave(self) -> None:
        """Go away; nobody listens any more."""
        self._server.shutdown()
        self._server.server_close()

    def come_back(self) -> None:
        """Listen again at the same port."""
        self._open(self.port)

    def _open(self, port: int) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service._answer(self)

            do_PUT = do_GET  # noqa: N815

            def log_message(self, *ignored: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def _answer(self, asked: BaseHTTPRequestHandler) -> None:
        self.asked.append((asked.command, asked.path, {name.lower(): value for name, value in asked.headers.items()}))
        self.silent.wait()
        status, text = (self.status, "an odd page") if self.status else self._look_up(*self.asked[-1])
        asked.send_response(status)
        if self.cloud == "google":
            asked.send_header("Metadata-Flavor", "Google")
        asked.end_headers()
        asked.wfile.write(text.encode())

    def _look_up(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        if self.cloud == "google":
            place, allowed = "/computeMetadata/v1/instance/", headers.get("metadata-flavor") == "Google"
        else:
            prefix = self.prefix.rstrip("/")
            if (method, path) == ("PUT", f"{prefix}/latest/api/token"):
                ttl = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
                if not 1 <= int(ttl or 0) <= 21600:
                    return 400, ""
                self.tokens.add(token := f"token-{len(self.asked)}")
                return 200, token
            place, allowed = f"{prefix}/latest/meta-data/", headers.get("x-aws-ec2-metadata-token") in self.tokens
        fact = self.facts.get(path.removeprefix(place)) if path.startswith(place) and method == "GET" else None
        if not allowed:
            return (403 if self.cloud == "google" else 401), ""
        return (404, "") if fact is None else (200, fact)


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    """The metadata service of a cloud."""
    made = Metadata()
    yield made
    made.silent.set()
    made.leave()
