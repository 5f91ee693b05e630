"""Work that is repeated in a thread while something else goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("ebclab.storage")


@contextmanager
def repeating(work: Callable[[], None], seconds: float) -> Iterator[None]:
    """Do ``work`` every so many seconds in a thread; what goes wrong then is logged and tried again."""
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
        thread.join()


@contextmanager
def logged() -> Iterator[None]:
    """Log what goes wrong with something that will be tried again, or may be left out."""
    try:
        yield
    except Exception as error:
        _log.warning("%s", error)
