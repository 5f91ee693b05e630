"""Ctrl-C and SIGTERM: the first asks the loop to save and stop, a second one aborts at once."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from ebclab.errors import UserError
from ebclab.storage.signal_file import SignalFile


class Stop(Protocol):
    """Whether somebody asked the run to stop."""

    @property
    def is_set(self) -> bool: ...

    def set(self) -> None: ...


class StopFlag:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Ask the run to stop after the step in progress."""
        self.is_set = True


class FileRequest:
    """A wish as a note, for a run whose training happens in other processes.

    Args:
        note: It is there when somebody has asked. A store that does not answer tells of no wish.
    """

    def __init__(self, note: SignalFile) -> None:
        self._note = note
        self._seen, self._looked = False, -math.inf

    @property
    def is_set(self) -> bool:
        """Somebody has asked."""
        if not self._seen and time.monotonic() - self._looked >= self._note.pause:
            self._looked = time.monotonic()
            try:
                self._seen = self._note.read(patient=False) is not None
            except UserError:
                return False
        return self._seen

    def set(self) -> None:
        """Ask; it is heard at the run's next log step."""
        self._note.write(b"")

    def clear(self) -> None:
        """Forget that somebody has asked."""
        self._seen, self._looked = False, -math.inf
        self._note.clear()


@contextmanager
def stop_on_signals(flag: Stop) -> Iterator[None]:
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
        restore()
        flag.set()

    for number in watched:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()
