"""Shared test set-up: one torch thread, so that parallel test runs do not fight for cores; a cloud's own service."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


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
