"""What an instance of Ray on this machine alone is given, so that no other user of the machine gets in."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import ray
from ray._private import services
from tests.support.waiting import until

from ebclab.cluster.join import _init
from ebclab.cluster.local_instance import on_loopback, private_instance
from ebclab.errors import UserError

NOBODY = 65534
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc lists no processes here")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that everybody may enter, as on many machines; nothing above it keeps them out."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    for folder in [home, *home.parents][:-1]:
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    return home


@pytest.fixture
def around(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's instances, within a home; no variable names a token."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    return home / f"ebclab-{os.geteuid()}"


def test_each_instance_has_a_random_token_of_its_own_that_only_its_user_reads(around: Path) -> None:
    texts, umask = [], os.umask(0)
    try:
        for _ in range(2):
            with private_instance() as folder:
                file = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
                assert file.parent == folder
                assert folder.parent == around
                assert (_mode(file), _mode(folder), _mode(around)) == (0o600, 0o700, 0o700)
                texts.append(file.read_text())
            assert list(around.iterdir()) == []
        with suppress(KeyError), private_instance():
            raise KeyError("the work")
        assert list(around.iterdir()) == []
    finally:
        os.umask(umask)
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in texts)
    assert len(set(texts)) == 2


@pytest.mark.parametrize(
    ("variables", "is_made"),
    [
        ({}, True),
        ({"RAY_AUTH_TOKEN": "mine"}, True),
        ({"RAY_AUTH_TOKEN_PATH": "/mine"}, True),
        ({"RAY_AUTH_MODE": "disabled"}, False),
    ],
)
def test_the_users_own_token_is_neither_used_nor_made_nor_changed(variables, is_made, around, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with private_instance() as folder:
        assert os.environ.get("RAY_AUTH_TOKEN_PATH") == (str(folder / "token") if is_made else None)
        assert "RAY_AUTH_TOKEN" not in os.environ
        assert [path.name for path in folder.iterdir()] == (["token"] if is_made else [])
    assert dict(os.environ) == before
    assert not (around.parent / ".ray").exists()


def test_a_folder_of_instances_that_others_enter_is_closed_and_a_link_refused(around: Path) -> None:
    around.mkdir(mode=0o700)
    around.chmod(0o777)
    with private_instance():
        assert _mode(around) == 0o700
    around.rmdir()
    around.symlink_to(around.parent)
    with pytest.raises(UserError, match=f"^{around}: is a symbolic link; set RAY_TMPDIR to a folder of yours"):
        private_instance().__enter__()


@as_root
def test_a_folder_of_instances_that_another_user_made_first_is_refused(around: Path) -> None:
    around.mkdir()
    os.chown(around, NOBODY, NOBODY)
    with pytest.raises(UserError, match=f"^{around}: belongs to another user, got user {NOBODY}; set RAY_TMPDIR"):
        private_instance().__enter__()


@contextmanager
def _processes(*commands: tuple[str, ...]) -> Iterator[list[subprocess.Popen[bytes]]]:
    running = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *each]) for each in commands]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


AGENT = f"{Path(ray.__file__).parent}/agent.py"


@linux
def test_the_next_instance_ends_what_dead_ones_left_and_nothing_else(around: Path) -> None:
    dead = around / "i-dead"
    with private_instance() as alive:
        dead.mkdir()
        commands = [(AGENT, f"--dir={dead}/s"), (AGENT, f"--dir={alive}/s"), ("notes.py", f"{dead}/s"), (AGENT, "/s")]
        with _processes(*commands) as (left, of_another, not_rays, elsewhere):
            with private_instance():
                assert left.wait(timeout=30) == -signal.SIGKILL
                assert not dead.exists()
                assert alive.exists()
            assert [process.poll() for process in (of_another, not_rays, elsewhere)] == [None] * 3


DRIVER = """
import subprocess, sys, time
from ebclab.cluster.local_instance import private_instance
with private_instance() as folder:
    command = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1], f"--dir={folder}/s"]
    print(subprocess.Popen(command, start_new_session=True).pid, folder, flush=True)
    time.sleep(600)
"""


@linux
@pytest.mark.usefixtures("around")
def test_after_its_driver_is_killed_alone_or_with_its_group_an_instance_is_ended_and_removed() -> None:
    """Two instances, since each is given five seconds to end by itself."""
    command, instances = [sys.executable, "-c", DRIVER, AGENT], list[tuple[int, Path]]()
    with ExitStack() as drivers:
        for kill in (os.kill, os.killpg):
            started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            driver = drivers.enter_context(started)
            drivers.callback(kill, driver.pid, signal.SIGKILL)
            assert driver.stdout is not None
            number, folder = driver.stdout.readline().split()
            instances.append((int(number), Path(folder)))
    try:
        until(lambda: not any(folder.exists() for _, folder in instances))
        until(lambda: all(_is_gone(number) for number, _ in instances))
    finally:
        for number, _ in instances:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def _is_gone(number: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError:
        return True


@linux
def test_a_watchdog_does_not_outlive_an_instance_that_ends_in_peace(around: Path) -> None:
    def watchdogs() -> list[Path]:
        found = []
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if b"leftovers.py" in (text := command.read_bytes()) and os.fsencode(around) in text:
                    found.append(command)
        return found

    with private_instance():
        until(lambda: len(watchdogs()) == 1)
    until(lambda: watchdogs() == [], seconds=10)  # its grace is for what is left, and nothing is


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Ray is on loopback by itself")
@pytest.mark.parametrize("value", [None, "1"])
def test_rays_address_is_loopback_within_the_block_alone(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    monkeypatch.setattr("ray._private.worker._global_node", None)
    monkeypatch.setattr(services, "node_ip_address_from_perspective", lambda address: "192.0.2.1")
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)
    assert services.get_node_ip_address() == "192.0.2.1"
    with on_loopback():
        assert (services.get_node_ip_address(), os.environ[name]) == ("127.0.0.1", "0")
    assert (services.get_node_ip_address(), os.environ.get(name)) == ("192.0.2.1", value)
    with pytest.raises(RuntimeError, match="Ray did not start"), on_loopback():
        raise RuntimeError("Ray did not start")
    assert (services.get_node_ip_address(), os.environ.get(name)) == ("192.0.2.1", value)


STARTED = """
import os, sys
from ray._private.authentication import authentication_token_setup as ray_s_own
from ray._raylet import AuthenticationMode, get_authentication_mode
from ebclab.cluster.local_instance import private_instance
names = {AuthenticationMode.TOKEN: "TOKEN", AuthenticationMode.DISABLED: "DISABLED"}
with private_instance():
    ray_s_own.enable_token_auth_by_default()  # what ray.init does when it starts an instance
    print(names[get_authentication_mode()], end=" ")
print(names[get_authentication_mode()], os.environ.get("RAY_AUTH_MODE"))
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [(None, "TOKEN DISABLED None"), ("disabled", "DISABLED DISABLED disabled"), ("token", "TOKEN TOKEN token")],
)
def test_after_an_instance_of_its_own_a_process_wants_tokens_as_it_did_before(before: str | None, said: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = kept | ({"RAY_AUTH_MODE": before} if before else {})
    done = subprocess.run([sys.executable, "-c", STARTED], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == said


def test_sigterm_interrupts_as_ctrl_c_does_after_ray_has_started_unless_the_user_handles_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray itself sets a handler that ends the process without a word."""
    monkeypatch.setattr(ray, "init", lambda **_: signal.signal(signal.SIGTERM, lambda *_: sys.exit(15)))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _init("192.0.2.1:6379", None)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
        _init("192.0.2.1:6379", None)
        signal.raise_signal(signal.SIGTERM)
        assert asked == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
