"""Holding the folder of a run or a sweep for one process, and whether somebody does."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.errors import RunError

LOCK = ".lock"


@contextmanager
def held(folder: Path, *, busy: str, option: str, within: str = "") -> Iterator[None]:
    """Make ``folder`` if need be, and one within it, and hold it for this process alone.

    Args:
        folder: Of a run or a sweep.
        busy: What another process is doing when it holds the folder.
        option: Option of the command line that chooses another folder.
        within: Name of the folder within; empty for none.

    Raises:
        RunError: The folder cannot be written, or another process holds it.
    """
    try:
        (folder / within).mkdir(parents=True, exist_ok=True)
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
        yield


@contextmanager
def kept_free(folder: Path) -> Iterator[bool]:
    """Yield whether no process works in ``folder``; if so, none can begin to until the block is left."""
    try:
        lock = (folder / LOCK).open("rb")
    except FileNotFoundError:  # nobody has ever claimed it
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
    """Return whether a process works in ``folder``; no lock, or one that cannot be read, means no."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two readers do not take each other for a worker
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
