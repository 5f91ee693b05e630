"""Machines on one machine: each has its own network, processes, home, temporary files and sshd; a bridge joins them.

Linux only, as root. Nothing is reachable from outside: the bridge has no way out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PREFIX = f"10.77.{os.getpid() % 256}."
"""Of every address here; another session of tests on this machine has another."""

HOME = "/mnt/ebc-home"
"""Home of root on every host: memory of its own, that ends with the host."""

_SSHD = """ListenAddress {address}
Port 22
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""

_BEGIN = """set -e
hostname {name}
mount -t tmpfs tmpfs /mnt
mkdir -m 700 {home}
mount --bind {folder}/passwd /etc/passwd
mkdir -p /tmp/ray
mount -t tmpfs tmpfs /tmp/ray
mount -t tmpfs tmpfs /dev/shm
read -r go
ip link set lo up
ip addr add {address}/24 dev {device}
ip link set {device} up
ip route add default via {gateway}
exec /usr/sbin/sshd -D -e -f {folder}/sshd-{name}
"""


def why_not() -> str:
    """Return why there can be no hosts on this machine; empty when there can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    missing = [tool for tool in ("ip", "unshare", "ssh", "ssh-keygen", "rsync") if shutil.which(tool) is None]
    if not Path("/usr/sbin/sshd").exists():
        missing.append("sshd")
    if missing:
        return f"not installed: {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "true"], check=False)
    return "" if tried.returncode == 0 else "this machine allows no namespaces"


@dataclass
class Host:
    """A machine."""

    name: str
    address: str  # on the bridge
    process: subprocess.Popen[bytes]  # ends when the host has ended
    first: int = 0  # its first process; all others end with that one

    def kill(self) -> None:
        """Switch it off."""
        if self.process.poll() is None:
            os.kill(self.first, signal.SIGKILL)
            self.process.wait()


class Network:
    """Hosts on a bridge, and the key that opens them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hosts = folder, list[Host]()
        self.bridge = f"ebc{os.getpid() % 100000}"
        self.gateway = f"{PREFIX}1"
        for name in ("host", "user"):
            _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        lines = Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
        fields = [line.split(":") for line in lines]
        for each in fields:
            if each[0] == "root":
                each[5] = HOME
        (folder / "passwd").write_text("\n".join(":".join(each) for each in fields) + "\n", encoding="utf-8")
        Path("/run/sshd").mkdir(exist_ok=True)
        _do("ip", "link", "add", self.bridge, "type", "bridge")
        _do("ip", "addr", "add", f"{self.gateway}/24", "dev", self.bridge)
        _do("ip", "link", "set", self.bridge, "up")

    @property
    def key(self) -> Path:
        """The private key of root on every host."""
        return self.folder / "user"

    def add(self, name: str) -> Host:
        """Start a host."""
        number = len(self.hosts) + 2
        address, device, outside = f"{PREFIX}{number}", f"in{number}", f"{self.bridge}-{number}"
        (self.folder / f"sshd-{name}").write_text(_SSHD.format(address=address, folder=self.folder), encoding="utf-8")
        script = _BEGIN.format(
            name=name, home=HOME, folder=self.folder, address=address, device=device, gateway=self.gateway
        )
        apart = ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]
        log = (self.folder / f"{name}.log").open("wb")
        process = subprocess.Popen([*apart, "bash", "-c", script], stdin=subprocess.PIPE, stdout=log, stderr=log)
        log.close()
        host = Host(name, address, process)
        self.hosts.append(host)
        host.first = _child_of(process.pid)
        _do("ip", "link", "add", outside, "type", "veth", "peer", "name", device, "netns", str(host.first))
        _do("ip", "link", "set", outside, "master", self.bridge)
        _do("ip", "link", "set", outside, "up")
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        self._until_it_answers(host)
        return host

    def run(self, host: Host, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on a host, as a user who logs in."""
        return subprocess.run([*self.ssh(host), command], capture_output=True, text=True, check=False)

    def ssh(self, host: Host) -> list[str]:
        """Return the command that logs in there."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=5", "LogLevel=ERROR")
        given = [part for option in options for part in ("-o", option)]
        return ["ssh", *given, "-i", str(self.key), f"root@{host.address}"]

    def end(self) -> None:
        """Switch every host off and take the bridge away."""
        for host in self.hosts:
            host.kill()
        ours = [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(self.bridge)]
        for name in sorted(ours, reverse=True):
            with contextlib.suppress(subprocess.CalledProcessError):  # gone with its host
                _do("ip", "link", "del", name)

    def _until_it_answers(self, host: Host) -> None:
        give_up = time.monotonic() + 300
        while self.run(host, "true").returncode != 0:
            log = (self.folder / f"{host.name}.log").read_text(encoding="utf-8")
            assert time.monotonic() < give_up, f"{host.name} does not answer: {log}"
            assert host.process.poll() is None, f"{host.name} has ended: {log}"
            time.sleep(0.2)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests of this folder, and skip them with the reason where there can be no hosts."""
    here, reason = Path(__file__).parent, why_not()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1800))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """For keys, files and the home of the user of the laptop; on the disk, since hosts see memory of their own."""
    with TemporaryDirectory(prefix="ebc", dir="/tmp") as made:
        Path(made, "home").mkdir()
        yield Path(made)


@pytest.fixture(scope="module")
def network(folder: Path) -> Iterator[Network]:
    """A head and two workers; nothing is left of them."""
    made = Network(folder)
    try:
        for name in ("ebc-head", "ebc-worker1", "ebc-worker2"):
            made.add(name)
        yield made
    finally:
        made.end()


def _child_of(process: int) -> int:
    """Return the first process in the new namespaces, once it is there."""
    path, own = Path(f"/proc/{process}/task/{process}/children"), os.readlink("/proc/self/ns/net")
    give_up = time.monotonic() + 240
    while time.monotonic() < give_up:
        children = path.read_text(encoding="utf-8").split()
        if children and os.readlink(f"/proc/{children[0]}/ns/net") != own:
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError("unshare has started nothing")


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
