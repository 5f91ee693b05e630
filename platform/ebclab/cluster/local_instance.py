"""Protects a Ray instance that runs on this machine only from the machine's other users: token, folder, ports.

By default, Ray makes the token readable and its sessions writable for all users, and listens on all addresses of the
machine.
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
_OTHERS = 0o077  # permissions of group and others
_OTHERS_WRITE = 0o022

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


def put_back_token_mode(before: str | None) -> None:
    """Restore the token mode: after Ray starts an instance, this process requires tokens from all its peers.

    Otherwise a head without a token that is joined next could not reach it: trials and workers would appear to die.

    Args:
        before: Value of the mode's environment variable before the instance was started; None if it was not set.
    """
    if os.environ.get(MODE) == before:
        return
    _put_back({MODE: before})
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()  # both, as Ray's own tests do between two modes


def _put_back(before: Mapping[str, str | None]) -> None:
    """Restore environment variables to their previous values; None removes a variable."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def folder_of_sessions() -> Path:
    """Return the folder for Ray's sockets, logs and spilled objects, in a parent that only this user can access.

    Ray makes its own folders accessible to all users (0777), so access is restricted at their parent folder.

    Raises:
        UserError: The parent folder belongs to another user, is a symbolic link, or cannot be created.
    """
    around = Path(get_default_system_temp_dir()) / f"ebclab-{os.geteuid()}"  # type: ignore[no-untyped-call]
    with _own_folder(around, "set RAY_TMPDIR to a folder of yours"):
        return around / "ray"


@contextmanager
def session_removed() -> Iterator[None]:
    """At exit, after the block has shut down the instance that this process started, remove the instance's folder.

    Folders of other sessions are kept, since their processes may be alive. A killed process leaves its own behind.
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
    """Ensure that only this user can read the token of a Ray instance that is about to start here.

    A missing token is created, since Ray would create one that all users can read. A token file that others can read
    is restricted to this user, with a warning. Nothing is done if Ray takes the token from an environment variable or
    the user has disabled tokens.

    Args:
        environment: Environment variables.

    Raises:
        UserError: The file or folder belongs to another user, is a symbolic link, or cannot be read or written; or a
            file given by RAY_AUTH_TOKEN_PATH is missing or empty, or in a folder to which others may write.
    """
    source = token_source(environment)
    if source.file is None or not sends_token(environment, unasked=True):
        return
    if source.required:
        source.read()  # raises an error if it is missing or empty
        _require_only_ours(source.file.parent)
        _private_text(source.file)
        return
    remedy = "move it away, or name a file of yours in RAY_AUTH_TOKEN_PATH"
    with _own_folder(source.file.parent, remedy) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # two processes that start at the same time create one token
        if not _private_text(source.file):
            _write(source.file, secrets.token_hex(32))


@contextmanager
def _own_folder(folder: Path, remedy: str) -> Iterator[int]:
    """Create a folder if needed, restrict it to this user, and yield its file descriptor.

    Raises:
        UserError: It belongs to another user, is a symbolic link, or cannot be created.
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
    """Restrict a file to this user and return its content without surrounding whitespace; empty if there is no file.

    Raises:
        UserError: It belongs to another user, is not a regular file, or cannot be read.
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
    """Restrict an open file or folder of this user to ``mode``; return whether others had access to it.

    Raises:
        UserError: It belongs to another user, or its mode cannot be changed.
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
    """Refuse a folder in which other users could replace the user's token.

    Raises:
        UserError: Others may write to it, and it has no sticky bit.
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
