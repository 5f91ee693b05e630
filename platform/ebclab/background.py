"""Work that is repeated in a thread while something else goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("ebclab.storage")


_PATIENCE = 2.0  # seconds for which the end waits for work in progress


@contextmanager
def repeating(work: Callable[[], None], seconds: float, what: str) -> Iterator[None]:
    """Do ``work`` every so many seconds in a thread; what goes wrong then is logged and tried again.

    Work that has no answer does not hold up the end: it is left alone, which is logged, and ends with the process.

    Args:
        work: What is to be done.
        seconds: Between its end and its next beginning.
        what: What the work is, for the message.
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
    """Log what goes wrong with something that will be tried again, or may be left out."""
    try:
        yield
    except Exception as error:
        _log.warning("%s", error)
