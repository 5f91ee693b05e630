"""Requests to stop a run: Ctrl-C, SIGTERM, and signal files for runs on workers."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Protocol

from ebclab.background import handle_sigterm
from ebclab.errors import InterruptedRunError, UserError
from ebclab.storage.signal_file import SignalFile

ASKED = "asked to stop: saves after the step in progress, then ends; once more ends without saving"
_WATCHED = (signal.SIGINT, signal.SIGTERM)


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
    """Say of an interrupt, or of SIGTERM, in this block that what is done is saved in the folder ``address``."""
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:  # it would end the process without a word
        handle_sigterm(signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped; what is done is saved in {address}; the same command resumes from there"
        ) from None
    finally:
        handle_sigterm(before)


@contextmanager
def stop_on_signals(flag: Stop, note: Callable[[str], None] | None = None) -> Iterator[None]:
    """Set ``flag`` on the first SIGINT or SIGTERM, so that the loop saves and stops; the second one aborts at once.

    Only the main thread of a program can catch signals; in other threads this does nothing.

    Args:
        note: Says ``ASKED`` at the first signal, from another thread; None if the caller says so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _WATCHED}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        restore()
        flag.set()

    for number in _WATCHED:
        signal.signal(number, ask)
    is_child = multiprocessing.parent_process() is not None  # of ``work_at_once``, which says so for all
    try:
        with nullcontext() if note is None or is_child else _answered_at_once(note):
            yield
    finally:
        restore()


@contextmanager
def _answered_at_once(note: Callable[[str], None]) -> Iterator[None]:
    """Say ``ASKED`` when a signal arrives; Python's handlers wait for calls of C to end, such as a backward pass."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def answer() -> None:
        while (number := ord(os.read(reader, 1))) not in (0, *_WATCHED):
            pass
        if number:
            note(ASKED)

    thread = threading.Thread(target=answer, daemon=True, name="ebclab-answer")
    thread.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(writer, b"\0")
        thread.join()
        os.close(writer)
        os.close(reader)
