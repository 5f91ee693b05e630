"""Whether somebody works in the folder of a run or a sweep, and keeping it free of them for a moment."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.training.run_folder import LOCK


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
    """Return whether a process works in ``folder``."""
    with kept_free(folder) as is_free:
        return not is_free
