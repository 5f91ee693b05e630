"""Repeats a function in a background thread, and logs its errors; handles SIGTERM; logs warnings once a process."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_log = logging.getLogger("ebclab.storage")


_PATIENCE = 2.0  # seconds to wait at the end for a call in progress


@contextmanager
def repeating(work: Callable[[], None], seconds: float, what: str = "") -> Iterator[None]:
    """Call ``work`` periodically in a daemon thread during the block; errors are logged and do not end the repetition.

    A call that hangs does not block the exit of the block: it is abandoned and ends with the process.

    Args:
        seconds: Pause before the first call, and between the end of a call and the next one.
        what: Name of a call in the warning that one was abandoned; empty if nothing is lost with it: no warning.
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
        if what and thread.is_alive():
            _log.warning("%s has no answer after %.0f s and is left alone", what, _PATIENCE)


@contextmanager
def logged() -> Iterator[None]:
    """Log exceptions of the block instead of raising them, for work that is retried or optional."""
    try:
        yield
    except Exception as error:
        _log.warning("%s", error)


@cache
def warn_once(log: str, message: str) -> None:
    """Log a warning under the name of a logger, once per process."""
    logging.getLogger(log).warning("%s", message)


def handle_sigterm(handler: Any) -> None:
    """Let ``handler``, one of ``signal.getsignal``, handle SIGTERM, where this thread may set it."""
    is_main = threading.current_thread() is threading.main_thread()  # no other may set a handler
    if is_main and handler is not None:  # None: one that is not Python's
        signal.signal(signal.SIGTERM, handler)
