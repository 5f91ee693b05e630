"""Command lines on a real job server: a head node with a token, an older ebclab installed, and a tunnel that breaks."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from ray_starts import one_start_at_a_time, ray_folder, ray_started
from run_files import free_ports
from tests.support.waiting import until

import ebclab
from ebclab.cli import main
from ebclab.runs.environment import source_commit
from ebclab.sweeps.log import SweepLog

pytestmark = pytest.mark.slow

TINY = ["--set", "data.train_limit=96", "--set", "training.batch_size=32", "--set", "resources.threads=1"]
SOURCES = os.pathsep.join(
    str(Path(path).parent) for path in (ebclab.__path__[0], __import__("energy_contrast").__path__[0])
)


class Head(NamedTuple):
    """A head node: the address of its job server, the home folder there, and the file with its token."""

    address: str
    home: Path
    token: Path

    def command(self, *arguments: object, address: str | None = None) -> list[str]:
        where = ["--address", address or self.address]
        return [sys.executable, "-m", "ebclab", "submit", *where, *map(str, arguments)]

    def environment(self, **changes: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        return {**kept, "PYTHONPATH": SOURCES, "RAY_AUTH_TOKEN_PATH": str(self.token)} | changes

    def submit(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the command as a user does."""
        environment = self.environment()
        command = self.command(*arguments)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    def ask(self, *arguments: object, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run it in this process, which has imported already what takes a process seconds."""
        out, err, words = io.StringIO(), io.StringIO(), self.command(*arguments)[3:]
        environment = mock.patch.dict(os.environ, self.environment(**changes), clear=True)
        with environment, redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def _answers(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """A head node of its own, whose processes would find an ebclab that does not work."""
    place = tmp_path_factory.mktemp("head")
    (place / "older" / "ebclab").mkdir(parents=True)
    (place / "older" / "ebclab" / "__init__.py").write_text("raise ImportError('an older ebclab')")
    token = place / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    (home := place / "home").mkdir()
    port, dashboard, agent = free_ports(3)
    bin_folder = Path(sys.executable).parent
    environment = {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "PYTHONPATH": str(place / "older"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "OMP_NUM_THREADS": "1",
        "RAY_worker_niceness": "0",
    }
    with ray_folder() as short, ExitStack() as stack:
        start = f"--head --block --disable-usage-stats --num-cpus 2 --temp-dir {short} --include-dashboard=true"
        start += f" --port {port} --dashboard-port {dashboard} --dashboard-agent-listen-port {agent}"
        with one_start_at_a_time():
            stack.enter_context(ray_started(f"{start} --dashboard-host=127.0.0.1", environment, cwd=home))
            until(lambda: _answers(dashboard) and _answers_anywhere(agent), pause=0.1)
        yield Head(f"http://127.0.0.1:{dashboard}", home, token)


def _answers_anywhere(port: int) -> bool:
    """Return whether the agent is up, which listens on the address that Ray takes for this machine's."""
    from ray.util import get_node_ip_address

    with socket.socket() as attempt:
        return attempt.connect_ex((get_node_ip_address(), port)) == 0


TUNNEL = """
import asyncio, sys

async def carry(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()

async def connect(reader, writer):
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer), return_exceptions=True)

async def main():
    server = await asyncio.start_server(connect, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def _tunnel(port: int, head: Head) -> Iterator[None]:
    """Carry connections from a port to the job server, like the SSH tunnel to a head node, until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", TUNNEL, str(port), head.address.rpartition(":")[2]])
    try:
        until(lambda: _answers(port), pause=0.1)
        yield
    finally:
        process.kill()
        process.wait()


def test_a_run_with_settings_of_a_file_lies_on_the_head_node_and_the_sent_code_made_it(
    head: Head, tmp_path: Path
) -> None:
    config = tmp_path / "my settings.yaml"
    config.write_text("method: {temperature: 0.37}\n")
    run = ["pretrain", "simclr", "--epochs", "2", "--name", "first", "--config", config, *TINY]
    done = head.submit("--name", "first", "--", *run)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "epoch 2/2" in done.stdout
    assert "Running entrypoint" not in done.stdout
    assert "on the head node, not here: ~/runs;" in done.stderr
    folder = head.home / "runs" / "first"
    assert json.loads((folder / "result.json").read_text())["epochs"] == 2
    assert "temperature: 0.37" in (folder / "config.yaml").read_text()
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["commit"] == source_commit()  # of the tree that was sent; the head node has none
    assert environment["command"][:5] == ["ebclab", "pretrain", "simclr", "--epochs", "2"]
    again = head.ask("--follow", "first")
    assert (again.returncode, again.stdout) == (0, done.stdout)
    taken = head.ask("--name", "first", "--", *run)
    assert taken.returncode == 2
    assert "--name: taken by another job" in taken.stderr


def test_a_sweep_runs_the_sent_code_and_space_in_the_workers_of_the_cluster(head: Head, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("parameters:\n  method.temperature: {choice: [0.2, 0.5]}\n")
    budget = ["--trials", "2", "--epochs", "1", "--set", "training.epochs=1", "--top", "0", "--search", "grid"]
    sweep = ["sweep", "simclr", f"--space={space}", *budget, "--scheduler", "none", "--name", "tiny", *TINY]
    sweep += ["--concurrent", "1"]
    done = head.ask("--", *sweep)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "trial 0001 finished after epoch 1/1" in done.stdout
    trials = SweepLog(head.home / "sweeps" / "tiny" / "trials.jsonl").trials.values()
    assert sorted(trial.settings["method.temperature"] for trial in trials) == [0.2, 0.5]
    assert {trial.state for trial in trials} == {"finished"}


def test_the_exit_code_of_the_command_passes_through(head: Head) -> None:
    done = head.ask("--name", "wrong", "--", "evaluate", "runs/nothing")
    assert done.returncode == 2
    assert "runs/nothing: no run here" in done.stdout
    assert head.ask("--follow", "wrong").returncode == 2
    listed = head.ask("--list")
    assert listed.returncode == 0
    assert "wrong: failed, exit code 2, started" in listed.stdout
    assert "    evaluate runs/nothing\n" in listed.stdout
    stopped = head.ask("--stop", "wrong")
    assert (stopped.returncode, stopped.stdout) == (0, "wrong is over already: failed\n")


def test_following_outlives_a_cut_and_ctrl_c_and_a_stopped_run_saves(head: Head) -> None:
    run = [
        "pretrain",
        "simclr",
        "--epochs",
        "20000",
        "--name",
        "long",
        *TINY,
        "--set",
        "training.checkpoint_every=1000000",
    ]
    detached = head.ask("--name", "long", "--detach", "--", *run)
    assert detached.returncode == 0, detached.stderr
    assert "`ebclab submit --stop long" in detached.stderr
    (port,) = free_ports(1)
    with _tunnel(port, head):
        following = subprocess.Popen(
            head.command("--follow", "long", address=f"http://127.0.0.1:{port}"),
            env=head.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert following.stdout is not None
        assert following.stderr is not None
        lines = [following.stdout.readline() for _ in range(2)]
    lost = following.stderr.readline()
    with _tunnel(port, head):
        lines += [following.stdout.readline() for _ in range(2)]
        following.send_signal(signal.SIGINT)
        rest, said = following.communicate(timeout=300)
    assert following.returncode == 130
    assert lost.startswith("connection lost, the job continues; trying again in 1 s")
    assert "long continues; `ebclab submit --follow long" in said
    assert "Traceback" not in said
    assert head.ask("--stop", "long").returncode == 0
    ended = head.ask("--follow", "long")
    assert ended.returncode == 130
    assert ended.stdout.startswith("".join(lines) + rest)  # each line came once, and none was lost at the cut
    (step,) = re.findall(r"stopped at step (\d+) of 40000; everything is saved", ended.stdout)
    assert (head.home / "runs/long/checkpoints" / f"last-{int(step):010d}").is_dir()


def test_a_token_that_is_wrong_or_missing_and_an_unknown_job_are_told_in_a_sentence(head: Head, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text(secrets.token_hex(32))
    cases = [
        (head.ask("--list", RAY_AUTH_TOKEN_PATH=str(wrong)), "refuses the token from RAY_AUTH_TOKEN_PATH"),
        (head.ask("--list", RAY_AUTH_TOKEN_PATH="", HOME=str(tmp_path)), "asks for a token, got none"),
        (head.ask("--list", RAY_AUTH_TOKEN_PATH=str(tmp_path / "no")), "no file with a token, got"),
        (head.ask("--list", RAY_AUTH_MODE="disabled"), "got RAY_AUTH_MODE=disabled"),
        (head.ask("--follow", "frist"), "no such job on"),
        (head.ask("--stop", "frist"), "no such job on"),
    ]
    for done, sentence in cases:
        assert done.returncode == 2
        assert done.stdout == ""
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1
        for secret in (wrong, head.token):
            assert secret.read_text() not in done.stderr
