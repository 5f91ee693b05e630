"""An instance of Ray on this machine alone, as runs and sweeps start it: who gets in, and where it listens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_workers import environment_without
from ray_starts import one_start_at_a_time, ray_folder, users_of
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="/proc lists no sockets here"),
]

NOBODY = 65534
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, the same within IPv6, and ::1, as /proc writes addresses."""

INSTANCE = """
import json, os, sys
from ebclab.cluster.switches import set_ray_switches
set_ray_switches()
from ebclab.cluster.join import cluster_session
from ebclab.training.display import Listener
from functools import partial
import ray
from ray._private import parameter
# another instance on this machine may have the usual port, 52365, and this one would then listen on none
parameter.RayParams = partial(parameter.RayParams, dashboard_agent_listen_port=0)
with cluster_session("local", Listener()):
    worker, gloo = ray.get(ray.remote(lambda: (os.getpid(), os.environ.get("GLOO_SOCKET_IFNAME"))).remote())
    told = {"gloo": gloo, "worker": worker}
    print(json.dumps(ray._private.worker._global_node.address_info | told), flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Instance:
    """An instance that runs.

    Attributes:
        home: The home of its user.
        process: The process that started it.
        facts: What Ray says of it.
    """

    home: Path
    process: int
    facts: dict[str, Any]

    def processes(self) -> set[int]:
        """Return the numbers of its processes: the one that started it, and all that came of that one."""
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended meanwhile
                words = status.read_text().rpartition(")")[2].split()
                parents[int(status.parent.name)] = int(words[1])
        family, before = {self.process}, set[int]()
        while family != before:
            before, family = family, family | {child for child, parent in parents.items() if parent in family}
        return family

    def listening(self) -> dict[int, set[str]]:
        """Return the ports on which its processes listen, each with its addresses as /proc writes them."""
        inodes = set()
        for process in self.processes():
            with suppress(OSError):  # it ended meanwhile
                inodes |= {os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir()}
        ports: dict[int, set[str]] = {}
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                address, _, port = words[1].partition(":")
                if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                    ports.setdefault(int(port, 16), set()).add(address)
        return ports


@contextmanager
def _started() -> Iterator[tuple[Instance, subprocess.Popen[str]]]:
    """An instance of a user with a home of his own, and the process that started it, which may be killed."""
    with ray_folder() as home:
        home.chmod(0o755)
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text("c" * 64)  # opens the clusters of this user
        variables = environment_without()  # its workers' ports count, too
        kept = {name: value for name, value in variables.items() if not name.startswith(("RAY_", "GLOO_"))}
        environment = {**kept, "HOME": str(home), "RAY_TMPDIR": str(home)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with one_start_at_a_time():
            process = subprocess.Popen([sys.executable, "-c", INSTANCE], env=environment, text=True, **pipes)
            facts = json.loads(process.stdout.readline())
        with process:
            yield Instance(home, process.pid, facts), process


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    with _started() as (started, process):
        yield started
        if process.poll() is None:  # the last test kills it
            process.stdin.close()
            assert process.wait(timeout=120) == 0


def test_every_port_is_on_loopback(instance: Instance) -> None:
    ports = instance.listening()
    facts = instance.facts
    assert facts["worker"] in instance.processes()
    known = {facts["dashboard_agent_listen_port"], facts["metrics_export_port"]}
    known |= {int(facts["gcs_address"].rpartition(":")[2])}
    assert known <= ports.keys()
    assert len(ports) >= 7  # GCS, raylet, agents, worker, this driver
    assert {port: addresses - LOOPBACK for port, addresses in ports.items() if addresses - LOOPBACK} == {}
    assert facts["gloo"] == "lo"


def test_no_process_is_started_of_which_a_command_has_no_use(instance: Instance) -> None:
    commands = [Path(f"/proc/{number}/cmdline").read_text() for number in instance.processes()]
    assert any("/raylet/raylet" in command for command in commands)
    unused = ("/dashboard/dashboard.py", "/autoscaler/_private/monitor.py", "/_private/log_monitor.py")
    assert [command for command in commands if any(name in command for name in unused)] == []


def _token(instance: Instance) -> Path:
    """Return the file with the instance's own token."""
    (file,) = instance.home.glob(f"ebclab-{os.geteuid()}/i-*/token")
    return file


def _post(instance: Instance, token: str) -> int:
    """Post a job to the agent; return the status of the answer."""
    url = f"http://127.0.0.1:{instance.facts['dashboard_agent_listen_port']}/api/job_agent/jobs/"
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, b'{"entrypoint": "true"}', headers), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _as_nobody(ask: Callable[[], object]) -> str:
    """Return as text what ``ask`` returns in a process of user nobody, or the name of its error."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answer = str(ask())
        except Exception as error:
            answer = type(error).__name__
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_the_job_port_of_the_agent_takes_jobs_from_those_with_the_token_alone(instance: Instance) -> None:
    of_clusters = (instance.home / ".ray" / "auth_token").read_text()
    answers = [_post(instance, text) for text in ("", "f" * 64, of_clusters, _token(instance).read_text())]
    assert answers == [401, 403, 403, 200]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")
def test_another_user_finds_neither_token_nor_sessions_and_his_job_is_refused(instance: Instance) -> None:
    session, token = Path(instance.facts["session_dir"]), _token(instance)
    assert session.is_relative_to(instance.home)
    assert _post(instance, token.read_text()) == 200
    assert _as_nobody(lambda: len(os.listdir(instance.home)) >= 2) == "True"
    assert _as_nobody(token.read_text) == "PermissionError"
    assert _as_nobody(lambda: os.listdir(session)) == "PermissionError"
    assert _as_nobody((session / "sockets" / "mine").touch) == "PermissionError"
    assert _as_nobody(lambda: _post(instance, "")) == "401"


def _program(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]


def _processes_of(instance: Instance) -> tuple[Path, dict[int, str]]:
    """Return the folder of an instance, and the processes that use it but for the one that started it."""
    folder = Path(instance.facts["session_dir"]).parent
    own = {number: command for number, command in users_of(folder).items() if number != instance.process}
    assert len(own) >= 5  # GCS, raylet, two agents, a worker
    return folder, own


def _until_nothing_is_left(folder: Path) -> None:
    until(lambda: not users_of(folder) and not folder.exists(), 60, f"{folder} is still used", pause=0.2)


@pytest.mark.fault
def test_nothing_of_an_instance_stays_after_a_kill_of_its_head() -> None:
    with _started() as (instance, process):
        folder, own = _processes_of(instance)
        for victim in [number for number in own if b"gcs_server" in _program(number)]:
            os.kill(victim, signal.SIGKILL)
        assert process.wait(timeout=120) != 0  # Ray ends a driver that has lost its GCS
        _until_nothing_is_left(folder)


@pytest.mark.fault
def test_nothing_of_an_instance_stays_after_a_kill_of_its_driver(instance: Instance) -> None:
    """The last of this file: no test after it has the instance."""
    folder, _ = _processes_of(instance)
    os.kill(instance.process, signal.SIGKILL)
    _until_nothing_is_left(folder)
