"""Ctrl-C and SIGTERM: the first asks the loop to save and stop, a second one aborts at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol


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


class StopFile:
    """The same wish as a file, for a run whose training happens in other processes.

    Args:
        path: The file; it exists when somebody asked the run to stop.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_set(self) -> bool:
        """Somebody asked the run to stop."""
        return self._path.exists()

    def set(self) -> None:
        """Ask the run to stop at its next log step."""
        self._path.touch()

    def clear(self) -> None:
        """Forget a wish of an earlier launch."""
        self._path.unlink(missing_ok=True)


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
        flag.set()
        restore()

    for number in watched:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()
