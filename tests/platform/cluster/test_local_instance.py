"""What an instance of Ray on this machine alone is given, so that no other user of the machine gets in."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ray._private import services

from ebclab.cluster.local_instance import folder_of_sessions, make_token_private, on_loopback
from ebclab.errors import UserError

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _as_nobody(*command: str) -> int:
    return subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True).returncode


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that everybody may enter, as on many machines; nothing above it keeps them out."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    for folder in [home, *home.parents][:-1]:
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    return home


def test_a_token_that_is_made_is_random_and_only_its_user_can_read_it(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    umask = os.umask(0)
    try:
        make_token_private({"HOME": str(home)})
    finally:
        os.umask(umask)
    assert (_mode(token), _mode(token.parent)) == (0o600, 0o700)
    text = token.read_text()
    assert re.fullmatch("[0-9a-f]{64}", text)
    make_token_private({"HOME": str(home)})
    assert token.read_text() == text
    token.unlink()
    make_token_private({"HOME": str(home)})
    assert token.read_text() != text


@as_root
def test_another_user_reads_rays_own_token_before_and_ours_not(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    token.parent.mkdir(mode=0o755)
    token.write_text("as Ray writes it")
    token.chmod(0o644)
    assert _as_nobody("cat", str(token)) == 0
    make_token_private({"HOME": str(home)})
    assert _as_nobody("cat", str(token)) != 0
    assert _as_nobody("ls", str(token.parent)) != 0
    assert token.read_text() == "as Ray writes it"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o606])
def test_a_token_that_others_could_read_is_closed_to_them_with_one_warning(
    mode: int, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = home / ".ray" / "auth_token"
    token.parent.mkdir(mode=0o755)
    token.write_text("mine\n")
    token.chmod(mode)
    for _ in range(2):
        make_token_private({"HOME": str(home)})
    assert (_mode(token), _mode(token.parent), token.read_text()) == (0o600, 0o700, "mine\n")
    (warning,) = caplog.records
    assert (warning.levelno, warning.name) == (logging.WARNING, "ebclab.cluster")
    assert warning.getMessage().startswith(f"{token}: other users could read the token until now; ")


def test_an_empty_token_is_filled_and_processes_that_start_at_once_agree(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.touch(mode=0o644)

    def start(_: int) -> str:
        make_token_private({"HOME": str(home)})
        return token.read_text()

    with ThreadPoolExecutor(8) as pool:
        texts = set(pool.map(start, range(40)))
    assert len(texts) == 1
    assert len(texts.pop()) == 64
    assert _mode(token) == 0o600


@pytest.mark.parametrize("what", [".ray", ".ray/auth_token"])
def test_a_symbolic_link_is_refused_and_what_it_leads_to_stays_as_it_is(what: str, home: Path) -> None:
    elsewhere = home / "elsewhere"
    if what == ".ray":
        elsewhere.mkdir(mode=0o755)
    else:
        (home / ".ray").mkdir()
        elsewhere.write_text("another's")
        elsewhere.chmod(0o644)
    before = _mode(elsewhere)
    (home / what).symlink_to(elsewhere)
    with pytest.raises(UserError, match=f"^{home / what}: is a symbolic link; "):
        make_token_private({"HOME": str(home)})
    assert _mode(elsewhere) == before
    assert list(elsewhere.iterdir()) == [] if elsewhere.is_dir() else elsewhere.read_text() == "another's"


@as_root
@pytest.mark.parametrize("what", [".ray", ".ray/auth_token"])
def test_what_belongs_to_another_user_is_refused(what: str, home: Path) -> None:
    (home / ".ray").mkdir(mode=0o700)
    (home / ".ray" / "auth_token").write_text("planted")
    os.chown(home / what, NOBODY, NOBODY)
    with pytest.raises(UserError, match=f"^{home / what}: belongs to another user, got user {NOBODY}; "):
        make_token_private({"HOME": str(home)})


def test_a_fifo_in_the_tokens_place_is_refused_and_not_waited_for(home: Path) -> None:
    (home / ".ray").mkdir(mode=0o700)
    os.mkfifo(home / ".ray" / "auth_token")
    with pytest.raises(UserError, match="auth_token: not an ordinary file"):
        make_token_private({"HOME": str(home)})


def test_a_named_file_is_closed_and_its_folder_left_alone_unless_others_may_write_there(home: Path) -> None:
    named = home / "token"
    named.write_text("named")
    named.chmod(0o644)
    environment = {"HOME": str(home), "RAY_AUTH_TOKEN_PATH": str(named)}
    make_token_private(environment)
    assert (_mode(named), _mode(home)) == (0o600, 0o755)
    home.chmod(0o777)
    with pytest.raises(UserError, match=f"^RAY_AUTH_TOKEN_PATH: other users may write into {home}, got mode 777; "):
        make_token_private(environment)
    home.chmod(0o1777)
    make_token_private(environment)
    named.unlink()
    with pytest.raises(UserError, match="RAY_AUTH_TOKEN_PATH: no file with a token"):
        make_token_private(environment)
    assert not (home / ".ray").exists()


@pytest.mark.parametrize("variables", [{"RAY_AUTH_TOKEN": "t"}, {"RAY_AUTH_MODE": "disabled"}])
def test_a_token_in_a_variable_or_none_makes_no_file(variables: dict[str, str], home: Path) -> None:
    make_token_private({"HOME": str(home)} | variables)
    assert list(home.iterdir()) == []


def test_sessions_lie_in_a_folder_that_only_this_user_enters(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    around = home / f"ebclab-{os.geteuid()}"
    assert folder_of_sessions() == around / "ray"
    assert _mode(around) == 0o700
    around.chmod(0o777)
    assert folder_of_sessions() == around / "ray"
    assert _mode(around) == 0o700
    around.rmdir()
    around.symlink_to(home)
    with pytest.raises(UserError, match=f"^{around}: is a symbolic link; set RAY_TMPDIR to a folder of yours"):
        folder_of_sessions()


@as_root
def test_a_folder_for_sessions_that_another_user_made_first_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    around = home / f"ebclab-{os.geteuid()}"
    around.mkdir()
    os.chown(around, NOBODY, NOBODY)
    with pytest.raises(UserError, match=f"^{around}: belongs to another user, got user {NOBODY}; set RAY_TMPDIR"):
        folder_of_sessions()


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
from ebclab.cluster.local_instance import put_back_token_mode
before = os.environ.get("RAY_AUTH_MODE")
ray_s_own.enable_token_auth_by_default()  # what ray.init does when it starts an instance
names = {AuthenticationMode.TOKEN: "TOKEN", AuthenticationMode.DISABLED: "DISABLED"}
print(names[get_authentication_mode()], end=" ")
put_back_token_mode(before)
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
