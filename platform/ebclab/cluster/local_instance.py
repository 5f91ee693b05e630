"""Protects a Ray instance that runs on this machine only from the machine's other users, and ends all of it.

By default, Ray makes the token readable and its sessions writable for all users, and listens on all addresses of the
machine.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import ray
from ray._common.utils import get_default_system_temp_dir
from ray._private import ray_constants
from ray._private.node import Node
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from ebclab.cluster import leftovers
from ebclab.cluster.address import MODE, TOKEN, TOKEN_PATH, sends_token
from ebclab.cluster.leftovers import PROCESSES, end_leftovers
from ebclab.errors import UserError

_FOLDER = 0o700
_OTHERS = 0o077  # permissions of group and others
_PREFIX = "i-"  # of an instance's folder; short, since the paths of sockets are limited
_RAY = Path(ray.__file__).parent
_REMEDY = "set RAY_TMPDIR to a folder of yours"

_SWITCH = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
"""Ray's switch between all addresses and 127.0.0.1; on macOS and Windows, Ray uses 127.0.0.1 by default."""

_GLOO = "GLOO_SOCKET_IFNAME"
"""Network interface over which ranks communicate; by default, gloo uses the one that the host name resolves to."""


@contextmanager
def on_loopback() -> Iterator[None]:
    """Bind all ports that Ray opens in this block to 127.0.0.1, including those of this process and later workers."""
    names = {_SWITCH: "0", _GLOO: os.environ.get(_GLOO) or ("lo0" if sys.platform == "darwin" else "lo")}
    before, allowed = {name: os.environ.get(name) for name in names}, ray_constants.ENABLE_RAY_CLUSTER
    os.environ.update(names)  # the processes of the instance inherit them
    ray_constants.ENABLE_RAY_CLUSTER = False  # this process read the variable when it imported Ray
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = allowed
        _put_back(before)


_UNUSED = ("start_api_server", "start_monitor", "start_log_monitor")
"""Methods that start the dashboard, of which Ray needs none but always a part, the autoscaler, and what sends logs."""


@contextmanager
def fewest_processes() -> Iterator[None]:
    """Start no process in this block of which an instance for one command has no use; the dashboard is waited for."""
    usual = {name: getattr(Node, name) for name in _UNUSED if hasattr(Node, name)}
    for name in usual:
        setattr(Node, name, lambda node, **options: None)
    try:
        yield
    finally:
        for name, method in usual.items():
            setattr(Node, name, method)


def _put_back(before: Mapping[str, str | None]) -> None:
    """Restore environment variables to their previous values; None removes a variable."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def private_instance() -> Iterator[Path]:
    """Yield a folder for a Ray instance that is started within this block, with a token of the instance's own.

    The folder is for sockets, logs and spilled objects. Ray makes its own folders accessible to all users (0777), so
    access is restricted at this one. At exit, after Ray was shut down, it is removed. If this process is killed, a
    watchdog ends Ray's processes and removes the folder; if both are killed, the next instance of this user does.
    """
    around = Path(get_default_system_temp_dir()) / f"ebclab-{os.geteuid()}"  # type: ignore[no-untyped-call]
    with _own_folder(around) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # no other start takes the new folder for one of a dead process
        _remove_dead(around)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=around))
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with _watchdog(folder, held), _own_token(folder):
            yield folder
    finally:
        os.close(held)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_dead(around: Path) -> None:
    """End and remove what is left of instances whose process and watchdog are both gone: no one locks their folders."""
    for folder in around.glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if PROCESSES.exists():
                end_leftovers(folder, _RAY)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use
            continue
        finally:
            os.close(descriptor)


@contextmanager
def _watchdog(folder: Path, held: int) -> Iterator[None]:
    """Have another process end what is left of the instance when this block or this process ends.

    It has a session of its own, so that signals to this process's group or terminal do not reach it.

    Args:
        held: File descriptor that locks the folder; the watchdog keeps the lock until it ends.
    """
    if not PROCESSES.exists():
        yield
        return
    command = [sys.executable, "-I", "-S", leftovers.__file__, str(folder), str(_RAY), str(os.getpid())]
    reads, told = os.pipe()
    process = subprocess.Popen(
        command,
        stdin=reads,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        pass_fds=(held,),
        start_new_session=True,
    )
    os.close(reads)
    try:
        yield
    finally:
        with suppress(OSError):  # someone has ended it
            os.write(told, b"\n")  # since a forked child may hold the pipe open
        os.close(told)
        threading.Thread(target=process.wait, daemon=True).start()  # no zombie is left, and no one waits


@contextmanager
def _own_token(folder: Path) -> Iterator[None]:
    """Have Ray use a random token of this instance's own in this block: in this process and those that it starts.

    The user's token, which opens clusters, does not open the instance, and is used again afterwards, as is the user's
    token mode: Ray switches tokens on when it starts an instance, and a head without a token that is joined next could
    not reach this process. With RAY_AUTH_MODE=disabled, nothing is changed.
    """
    if not sends_token(os.environ, unasked=True):
        yield
        return
    before = {name: os.environ.get(name) for name in (MODE, TOKEN, TOKEN_PATH)}
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32), encoding="utf-8")
    os.environ.pop(TOKEN, None)  # Ray prefers it to the file
    os.environ[TOKEN_PATH] = str(file)
    AuthenticationTokenLoader.instance().reset_cache()
    try:
        yield
    finally:
        _put_back(before)
        read_token_settings()


def read_token_settings() -> None:
    """Have Ray read again from the environment whether it sends a token, and which."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()  # both, as Ray's own tests do between two modes


@contextmanager
def _own_folder(folder: Path) -> Iterator[int]:
    """Create a folder if needed, restrict it to this user, and yield its file descriptor."""
    try:
        folder.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        what = "is a symbolic link" if folder.is_symlink() else f"cannot be used, got {error.strerror}"
        raise UserError(f"{folder}: {what}; {_REMEDY}") from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise UserError(f"{folder}: belongs to another user, got user {found.st_uid}; {_REMEDY}")
        if found.st_mode & _OTHERS:
            try:
                os.fchmod(descriptor, _FOLDER)
            except OSError as error:
                raise UserError(f"{folder}: other users can enter it, got {error.strerror}; {_REMEDY}") from error
        yield descriptor
    finally:
        os.close(descriptor)
