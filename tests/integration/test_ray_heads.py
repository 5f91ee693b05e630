"""Drivers and heads that die: the same command resumes. ``tests/support/faults.py`` says what is recorded."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import impatient
import pytest
import torch
from faults import MARKS, Fault, Record, assert_whole, finish
from ray_starts import one_start_at_a_time, users_of
from run_files import same_bits, weights
from tests.support.waiting import until
from two_ranks import TINY

import ebclab
from ebclab.training.display import Listener

pytestmark = MARKS


class Head:
    """A head that ``ray start`` began; killed with all its processes, it can be started again in its place.

    Args:
        full_waits: Commands on it wait as long as users' do.
    """

    def __init__(self, full_waits: bool) -> None:
        self._ebclab = impatient.USUAL if full_waits else impatient.HEAD
        self._folder = Path(tempfile.mkdtemp(prefix="ebc", dir="/tmp"))  # short: sockets lie in it
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
            self._port, self._client_port = free.getsockname()[1], other.getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._environment = {
            **kept,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "OMP_NUM_THREADS": "1",
            "RAY_worker_niceness": "0",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it is up."""
        options = (
            f"--head --block --num-cpus=2 --node-ip-address=127.0.0.1 --port={self._port} --include-dashboard=false"
        )
        options += f" --ray-client-server-port={self._client_port} --temp-dir={self._folder}"
        command = [str(Path(sys.executable).with_name("ray")), "start", *options.split()]
        said = self._folder / "said"
        with one_start_at_a_time():
            with said.open("wb") as log:
                self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
            until(lambda: b"Ray runtime started" in said.read_bytes() or self._process.poll() is not None)
        assert self._process.poll() is None, said.read_text()

    def kill(self) -> None:
        """Kill every process of it at once: all but the driver that are told its folder, or write into it."""
        assert self._process is not None
        for process in users_of(self._folder).keys() - {self.driver.pid if self.driver else 0}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Leave nothing of it."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def command(self, runs: Path, verb: str) -> tuple[int, str]:
        """Run a command on it to its end; return its exit code and what it said."""
        own, settings = ["--runs", str(runs), "--workers", "2"], [*TINY, "resources.cpus_per_worker=1"]
        if verb == "sweep":
            space, settings = runs / "space.yaml", [*TINY, "resources.threads=1"]
            space.write_text("parameters: {optimizer.learning_rate: {loguniform: [0.0001, 0.1]}}")
            own = ["--sweeps", str(runs), "--space", str(space), "--trials", "1", "--top", "0", "--epochs", "12"]
            own += ["--concurrent", "1", "--scheduler", "none"]
        program = [sys.executable, *self._ebclab, verb, "moco", *own, "--name", "run"]
        program += [part for text in settings for part in ("--set", text)]
        environment = {**self._environment, "RAY_ADDRESS": self.address}
        with subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            self.driver = process
            assert process.stderr is not None
            said = process.stderr.read().decode()
        return process.returncode, said


@pytest.fixture(scope="module")
def head(full_waits: bool) -> Iterator[Head]:
    """A head with two CPUs, up at the beginning of each test."""
    made = Head(full_waits)
    made.start()
    yield made
    made.end()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The final weights of a sweep's first trial, which has the settings that the sweep begins from."""
    config = ebclab.compose("moco", overrides=[*TINY, "resources.threads=1"])
    return weights(ebclab.pretrain(config, runs=tmp_path_factory.mktemp("alone"), display=Listener()).path)


@pytest.mark.parametrize(("what", "verb"), [("driver", "pretrain"), ("head", "pretrain"), ("head", "sweep")])
def test_when_the_driver_or_the_head_dies_the_same_command_goes_on(
    what: str,
    verb: str,
    head: Head,
    undisturbed_weights: dict[str, torch.Tensor],
    alone: dict[str, torch.Tensor],
    tmp_path: Path,
    record_property: Record,
) -> None:
    run = tmp_path / "run" if verb == "pretrain" else tmp_path / "run" / "trials" / "0000"
    said: list[tuple[int, str]] = []

    def train() -> None:
        said.append(head.command(tmp_path, verb))
        if what == "head":
            head.start()
        said.append(head.command(tmp_path, verb))

    fault = Fault(run, 24, head.kill if what == "head" else lambda: head.driver.kill())
    fault.during(train)
    (first, words), (second, last_words) = said
    assert second == 0, last_words
    if what == "head":
        assert first == 1
        assert re.search(
            r"^error: the cluster's head at \S+ has not answered for \d+ s; what was saved is kept: ", words, re.M
        )
        assert "Traceback" not in words
    name = {"driver": "the driver killed", "head": "the head restarted"}[what]
    during = {"pretrain": "during pretraining", "sweep": "during a sweep"}[verb]
    finish(fault, record_property, f"{name} {during}; the same command again")
    assert_whole(run, fault)
    assert same_bits(run, undisturbed_weights if verb == "pretrain" else alone)
