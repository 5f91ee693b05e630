"""Follows the log of a run that other processes train, and tells a listener what a run in one process tells it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ebclab.background import logged
from ebclab.runs.metrics_log import MetricsLog, measured, record_of
from ebclab.runs.stop_request import FileRequest, StopFlag, stop_on_signals
from ebclab.training.display import Listener
from ebclab.training.health.policy import in_words

_LAUNCHES = ("started", "resumed")
_POLL_SECONDS = 0.3


def watch(work: Callable[[], Any], follower: RunFollower, stop: FileRequest) -> Any:
    """Run ``work`` in a thread while this thread shows progress and catches Ctrl-C; return the result of ``work``.

    ``stop`` is set by the first Ctrl-C or SIGTERM; a second one aborts. It is set too where the listener ends the run
    (SystemExit, of a sweep's trial): ``work`` has ended before that is raised, since the process may be used again.
    """
    ended: list[Any] = []
    failed: list[Exception] = []
    left: SystemExit | None = None

    def run() -> None:
        try:
            ended.append(work())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name="ebclab-workers")
    asked, passed_on = StopFlag(), False
    try:
        with stop_on_signals(asked):
            thread.start()
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
                if asked.is_set and not passed_on:
                    with logged():  # when a store does not answer, the next round tries again
                        stop.set()
                        passed_on = True
                try:
                    if left is None:
                        follower.poll(stopping=asked.is_set)
                except SystemExit as error:
                    left = error.with_traceback(None)  # whose frames hold the open log
                    asked.set()
    finally:
        follower.close()
        with logged():
            stop.clear()
    if left is not None:
        raise left
    if failed:
        raise failed[0]
    return ended[0]


class RunFollower:
    """Tells a listener of every record that is added to a run's log from now on.

    Restarted workers rewrite the log without the measurements after their checkpoint (``MetricsLog.forget_after``).
    Events are never dropped, so counting them tells which are new; a measurement is new if its step is later than that
    of the last one shown.

    Attributes:
        launches: How often workers have started since this object was made.
    """

    def __init__(self, log: MetricsLog, epochs: int, listener: Listener) -> None:
        self._tail, self._epochs, self._listener = _Tail(log.path), epochs, listener
        self.launches = 0
        self._stopping = False
        self._last_shown: dict[str, int] = {}
        self._metrics: dict[str, float] = {}
        self._events = 0
        for line in self._tail.read()[0]:
            if (found := measured(line)) is not None:
                self._last_shown[found[0]] = found[1]
            elif (record := record_of(line)) is not None:
                self._events += record["kind"] == "event"
        self._passed = self._events

    def poll(self, *, stopping: bool = False) -> None:
        """Show the records added since the last call; if the run is ``stopping``, say so once."""
        if stopping and not self._stopping:
            when = "at their next log step" if self.launches else "at their first log step, when they have started"
            self._listener.note(f"asked to stop: the workers save {when}; once more aborts")
        self._stopping = stopping
        lines, replaced = self._tail.read()
        if replaced:
            self._passed = 0
        for line in lines:
            found = measured(line)
            if found is not None and found[1] <= self._last_shown.get(found[0], 0):
                continue
            record = record_of(line)
            if record is not None and self._is_new(record):
                self._show(record)

    def close(self) -> None:
        """Tell the listener that nothing more follows."""
        self._listener.stop()

    def _is_new(self, record: dict[str, Any]) -> bool:
        kind, step = record["kind"], record["step"]
        if kind != "event":
            new: bool = step > self._last_shown.get(kind, 0)
            self._last_shown[kind] = max(step, self._last_shown.get(kind, 0))
            return new
        self._passed += 1
        if self._passed <= self._events:
            return False
        self._events = self._passed
        if record["event"] in _LAUNCHES or "to_step" in record:
            step = record.get("to_step", step)
            self._last_shown = {"train": step, "epoch": step}
        return True

    def _show(self, record: dict[str, Any]) -> None:
        if record["kind"] == "event":
            self._show_event(record)
            return
        if record["kind"] == "callback":
            return
        values = {key: value for key, value in record.items() if isinstance(value, float)}
        is_epoch = record["kind"] == "epoch"
        self._metrics = {**self._metrics, **values} if is_epoch else values
        tell = self._listener.on_epoch if is_epoch else self._listener.on_log
        tell(record["step"], record["epoch"], self._metrics)

    def _show_event(self, record: dict[str, Any]) -> None:
        event, step = record["event"], record["step"]
        if event in _LAUNCHES:
            for line in [] if self.launches else record.get("notes", []):
                self._listener.note(line)
            ranks = f"{record['ranks']} worker{'s' if record['ranks'] != 1 else ''}"
            if event == "resumed":
                self._listener.note(f"resuming at step {step} of {record['num_steps']} on {ranks}")
            elif self.launches:
                self._listener.note(f"starting again on {ranks}")
            if self.launches:
                self._listener.stop()
            self._listener.start(step, record["num_steps"], self._epochs)
            self.launches += 1
        elif event == "health":
            self._listener.note(in_words(record))
        elif event == "extended":
            self._listener.note(record["text"])
        elif event == "warning":
            self._listener.note(f"warning: {record['text']}")


class _Tail:
    """Reads the whole lines added to a file since the last call; the file may be replaced by a shorter one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._offset = 0

    def read(self) -> tuple[Iterator[bytes], bool]:
        """Return an iterator over the new lines, to be used before the next call, and whether the file was replaced.

        All lines of a replaced file are new. The caller skips lines that are not records; ``MetricsLog.records`` warns
        of them.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return iter(()), False
        inode = os.fstat(file.fileno()).st_ino
        replaced = self._inode is not None and inode != self._inode
        if inode != self._inode:
            self._inode, self._offset = inode, 0
        return self._lines(file), replaced

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        with file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                yield line
