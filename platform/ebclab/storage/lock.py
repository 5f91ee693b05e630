"""The lock of a run or sweep folder on a disk."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.errors import RunError
from ebclab.storage import atomic

LOCK = ".lock"


@contextmanager
def locked(folder: Path, *, busy: str, option: str) -> Iterator[None]:
    """Create ``folder`` if needed and hold its lock; a disk that fills up meanwhile raises a RunError.

    Args:
        folder: The folder of a run or a sweep.
        busy: Activity of the process that holds the lock, for the message.
        option: Command-line option that selects another parent folder, for the message.

    Raises:
        RunError: The folder cannot be written or locked, another process holds the lock, or the disk is full.
    """
    try:
        atomic.make_folder(folder)
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise RunError(
            f"{folder}: cannot be written, got {error.strerror}; choose another folder with {option}"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{folder}: another process {busy}; wait for it or stop it") from error
        except OSError as error:
            raise RunError(
                f"{folder}: lies on a file system without locks, got {error.strerror}; choose another with {option}"
            ) from error
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise RunError(
                f"{folder}: the disk is full, got no room for {error.filename or 'a file'}; "
                "free some space and run the same command again"
            ) from error


@contextmanager
def kept_free(folder: Path) -> Iterator[bool]:
    """Yield whether no process holds the lock of ``folder``; a lock file that exists stays locked until exit."""
    try:
        lock = (folder / LOCK).open("rb")
    except FileNotFoundError:  # no process has ever claimed the folder
        yield True
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def is_running(folder: Path) -> bool:
    """Return whether a process works in ``folder``; False if the lock file is missing or cannot be read."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two readers must not block each other
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
