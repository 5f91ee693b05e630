"""Ctrl-C and SIGTERM: the first asks the loop to save and stop, a second one aborts at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Ask the run to stop after the step in progress."""
        self.is_set = True


@contextmanager
def stop_on_signals(flag: StopFlag) -> Iterator[None]:
    """Set ``flag`` on the first SIGINT or SIGTERM; the second does what it always did.

    Signals can be caught in a program's main thread only; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in watched}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        flag.set()
        restore()

    for number in watched:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()
