"""Repeats work in a background thread, and logs its errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("ebclab.storage")


_PATIENCE = 2.0  # seconds to wait at the end for work in progress


@contextmanager
def repeating(work: Callable[[], None], seconds: float, what: str) -> Iterator[None]:
    """Do ``work`` every so many seconds in a thread; errors are logged, and the work is tried again.

    Work that hangs does not block the end of the block: it is abandoned, which is logged, and ends with the process.

    Args:
        work: The work.
        seconds: Pause between the end of the work and its next start.
        what: Name of the work, for the message.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            with logged():
                work()

    thread = threading.Thread(target=repeat, daemon=True, name="ebclab-repeating")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_PATIENCE)
        if thread.is_alive():
            _log.warning("%s has no answer after %.0f s and is left alone", what, _PATIENCE)


@contextmanager
def logged() -> Iterator[None]:
    """Log errors of work that will be tried again, or may fail."""
    try:
        yield
    except Exception as error:
        _log.warning("%s", error)
