"""Requests to stop a run: Ctrl-C, SIGTERM, and signal files for runs on workers."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from ebclab.errors import InterruptedRunError, UserError
from ebclab.storage.signal_file import SignalFile


class Stop(Protocol):
    """A request to stop: whether it was made, and a way to make it."""

    @property
    def is_set(self) -> bool: ...

    def set(self) -> None: ...


class StopFlag:
    """A request to stop within one process."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Ask the run to stop after the step in progress."""
        self.is_set = True


class FileRequest:
    """A request through a signal file, for a run that trains in other processes.

    A store that does not answer counts as no request.
    """

    def __init__(self, signal_file: SignalFile) -> None:
        self._signal = signal_file
        self._seen, self._looked = False, -math.inf

    @property
    def is_set(self) -> bool:
        if not self._seen and time.monotonic() - self._looked >= self._signal.pause:
            self._looked = time.monotonic()
            try:
                self._seen = self._signal.read(patient=False) is not None
            except UserError:
                return False
        return self._seen

    def set(self) -> None:
        """Make the request; the run sees it at its next log step."""
        self._signal.write(b"")

    def clear(self) -> None:
        """Withdraw the request."""
        self._seen, self._looked = False, -math.inf
        self._signal.clear()


@contextmanager
def resumable(address: str) -> Iterator[None]:
    """Say of an interrupt in this block that what is done is saved in the folder ``address``."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped; what is done is saved in {address}; the same command resumes from there"
        ) from None


@contextmanager
def stop_on_signals(flag: Stop) -> Iterator[None]:
    """Set ``flag`` on the first SIGINT or SIGTERM, so that the loop saves and stops; the second one aborts at once.

    Only the main thread of a program can catch signals; in other threads this does nothing.
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
