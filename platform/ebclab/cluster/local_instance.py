"""Closes an instance of Ray on this machine alone to other users of the machine: its token, its folder, its ports.

Left to itself, Ray writes the token and its sessions so that every user can read the one and write into the other, and
listens on every address of the machine.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ray._common.utils import get_default_system_temp_dir
from ray._private import ray_constants, worker
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from ebclab.cluster.token import MODE, sends_token, token_source
from ebclab.errors import UserError

_log = logging.getLogger("ebclab.cluster")
_FOLDER, _FILE = 0o700, 0o600
_OTHERS = 0o077  # what group and others may do
_OTHERS_WRITE = 0o022

_SWITCH = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
"""Ray's switch between every address and 127.0.0.1; on macOS and Windows Ray sets it so by itself."""

_GLOO = "GLOO_SOCKET_IFNAME"
"""The interface on which ranks speak to each other; gloo takes the one that the machine's name leads to."""


@contextmanager
def on_loopback() -> Iterator[None]:
    """Bind to 127.0.0.1 what Ray starts in this block, this process's own port and those of later workers included."""
    names = {_SWITCH: "0", _GLOO: os.environ.get(_GLOO) or ("lo0" if sys.platform == "darwin" else "lo")}
    before, allowed = {name: os.environ.get(name) for name in names}, ray_constants.ENABLE_RAY_CLUSTER
    os.environ.update(names)  # the processes of the instance inherit them
    ray_constants.ENABLE_RAY_CLUSTER = False  # this process read the variable when it imported Ray
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = allowed
        _put_back(before)


def put_back_token_mode(before: str | None) -> None:
    """Undo that Ray, when it starts an instance, wants tokens from now on of whatever speaks to this process.

    A head without a token that is joined next could not reach this process: trials and workers would seem to die.

    Args:
        before: The environment variable of the mode before the instance was started; None when there was none.
    """
    if os.environ.get(MODE) == before:
        return
    _put_back({MODE: before})
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()  # both, as Ray's own tests do between two modes


def _put_back(before: Mapping[str, str | None]) -> None:
    """Give environment variables the values that they had; None when there was none."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def folder_of_sessions() -> Path:
    """Return the folder for Ray's sockets, logs and spilled objects, in one that only this user can enter.

    Ray opens its own folders to everybody (0777), so the folder around them is closed.

    Raises:
        UserError: The folder around it is another user's, a symbolic link, or cannot be made.
    """
    around = Path(get_default_system_temp_dir()) / f"ebclab-{os.geteuid()}"  # type: ignore[no-untyped-call]
    with _own_folder(around, "set RAY_TMPDIR to a folder of yours"):
        return around / "ray"


@contextmanager
def session_removed() -> Iterator[None]:
    """Remove the folder of the instance that this process has started once the block is left, which ends the instance.

    Folders of other sessions stay: their processes may be alive. A process that is killed leaves its own.
    """
    node = worker._global_node
    folder = Path(node.get_session_dir_path()) if node is not None and node.is_head() else None
    try:
        yield
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            latest = folder.with_name("session_latest")
            if latest.is_symlink() and os.readlink(latest) in (str(folder), folder.name):
                latest.unlink(missing_ok=True)


def make_token_private(environment: Mapping[str, str]) -> None:
    """See to it that only this user can read the token of an instance of Ray that is about to start here.

    A missing token is made, since Ray would make one that everybody can read. What others could read is closed to them,
    with a warning. Nothing happens where Ray takes the token from a variable, or where the user has switched it off.

    Args:
        environment: Environment variables.

    Raises:
        UserError: File or folder is another user's, a symbolic link, or cannot be read or written.
    """
    source = token_source(environment)
    if source.file is None or not sends_token(environment, unasked=True):
        return
    if source.required:
        source.read()  # refuses one that is missing or empty
        _require_only_ours(source.file.parent)
        _private_text(source.file)
        return
    remedy = "move it away, or name a file of yours in RAY_AUTH_TOKEN_PATH"
    with _own_folder(source.file.parent, remedy) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # two processes that start at once make one token
        if not _private_text(source.file):
            _write(source.file, secrets.token_hex(32))


@contextmanager
def _own_folder(folder: Path, remedy: str) -> Iterator[int]:
    """Make a folder if need be, close it to other users, and yield its file descriptor.

    Raises:
        UserError: It is another user's, a symbolic link, or cannot be made.
    """
    try:
        folder.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _refusal(folder, error, remedy) from error
    try:
        _close_to_others(folder, descriptor, _FOLDER, remedy)
        yield descriptor
    finally:
        os.close(descriptor)


def _private_text(path: Path) -> str:
    """Return what a file holds, closed to other users by now; empty when there is none.

    Raises:
        UserError: It is another user's, no ordinary file, or cannot be read.
    """
    remedy = "copy the token into a file of yours with `install -m 600`"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _refusal(path, error, remedy) from error
    with os.fdopen(descriptor, encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UserError(f"{path}: not an ordinary file, but Ray would take its token from there; {remedy}")
        if _close_to_others(path, descriptor, _FILE, remedy):
            _log.warning(
                "%s: other users could read the token until now; once no Ray of yours runs, delete the file, "
                "and a new token is made",
                path,
            )
        return file.read().strip()


def _write(path: Path, token: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _FILE)
    except OSError as error:
        raise _refusal(path, error, "name a file with a token in RAY_AUTH_TOKEN_PATH") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token)


def _close_to_others(path: Path, descriptor: int, mode: int, remedy: str) -> bool:
    """Give an open file or folder of this user's the mode that closes it to others; return whether it was open to them.

    Raises:
        UserError: It is another user's, or its mode cannot be changed.
    """
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        raise UserError(f"{path}: belongs to another user, got user {found.st_uid}; {remedy}")
    if not found.st_mode & _OTHERS:
        return False
    try:
        os.fchmod(descriptor, mode)
    except OSError as error:
        raise UserError(f"{path}: other users can enter it, got {error.strerror}; {remedy}") from error
    return True


def _require_only_ours(folder: Path) -> None:
    """Refuse a folder in which other users could put another token in place of the user's.

    Raises:
        UserError: Others may write into it, and it has no sticky bit.
    """
    mode = folder.stat().st_mode
    if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        raise UserError(
            f"RAY_AUTH_TOKEN_PATH: other users may write into {folder}, got mode {stat.S_IMODE(mode):o}; "
            "move the token into a folder of yours, or `chmod go-w` this one"
        )


def _refusal(path: Path, error: OSError, remedy: str) -> UserError:
    what = "is a symbolic link" if path.is_symlink() else f"cannot be used, got {error.strerror}"
    return UserError(f"{path}: {what}; {remedy}")
