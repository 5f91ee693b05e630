"""metrics.jsonl, the log of a run: every measurement and every decision, one JSON object per line."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ebclab.errors import RunError
from ebclab.regular_file import open_regular, own_file
from ebclab.storage import atomic
from ebclab.storage.reading import LARGEST_LOG, foreign_json_value, lines_left_out, with_types

KINDS = ("train", "epoch", "callback", "event")
"""Kinds of records."""

_OF_EVENTS = {
    "event": str,
    **dict.fromkeys(("reason", "text", "action", "finding"), str),
    **dict.fromkeys(("ranks", "num_steps", "reached", "dropped_records", "before", "now", "to_step"), int),
    **dict.fromkeys(("notes", "environment_changes"), list[str]),
    "acted": bool,
    "step_scale": float,
}
"""Types of the fields of events: the log may be someone else's."""

_MEASUREMENT = re.compile(rb'\{"kind": "(train|epoch)", "step": (\d{1,18}),')

_log = logging.getLogger("ebclab.training")


class MetricsLog:
    """Append-only log of a run, whose file is created on the first record.

    Every record has ``kind`` ("train", "epoch", "callback" or "event") and ``step``. Records of one kind share their
    other keys, except for numbers of monitors and callbacks, which not every epoch or step has.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, step: int, **values: Any) -> None:
        """Write one record on a line of its own; a last line truncated by a full disk or a power cut is ended first.

        Numbers that are not finite become strings, because JSON has no such numbers.
        """
        record = {"kind": kind, "step": step} | {key: _plain(value) for key, value in values.items()}
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            with open(self.path, "ab+", opener=own_file) as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    line = line if file.read() == b"\n" else b"\n" + line
                file.write(line)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EINVAL):
                raise
            raise RunError(f"{self.path}: cannot be written, got {error.strerror}; put a file in its place") from error

    def sync(self) -> None:
        """Flush the records written so far to disk, so that they survive a power cut."""
        if self.path.exists():
            atomic.sync_path(self.path)
            atomic.sync_path(self.path.parent)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield every valid record; a truncated last line is skipped, other invalid lines with a warning at the end."""
        bad, number, line = [], 0, b"\n"
        with self._opened() as file:
            for number, line in enumerate(file, start=1):
                record = record_of(line)
                if record is None:
                    bad.append(number)
                else:
                    yield record
        self._warn_of(bad if line.endswith(b"\n") or bad[-1:] != [number] else bad[:-1])

    def newest_measured(self) -> int | None:
        """Return the step of the newest measurement; None if there is none. Only the last lines are read."""
        with self._opened() as file:
            newest = (record_of(line) for _, line in lines_from_end(file))
            return next((record["step"] for record in newest if record and record["kind"] != "event"), None)

    def newest_ranks(self) -> int | None:
        """Return the number of ranks of the newest launch in the log; None if there is none."""
        with self._opened() as file:
            found = (record_of(line) for _, line in lines_from_end(file, having=b'"ranks"'))
            return next((record["ranks"] for record in found if record and "ranks" in record), None)

    def forget_after(self, step: int, is_undone: Callable[[Mapping[str, Any]], bool] = lambda event: False) -> int:
        """Drop the measurements after ``step``, which a resume makes again, and undone events; return how many records.

        Steps never decrease from one measurement to the next, because this is called whenever a run goes back. So only
        the lines after the last one to keep are read, and a log with nothing to drop is not rewritten. Invalid lines
        among them are dropped too, with a warning; earlier ones stay, and ``records`` warns of them. An event
        ``is_undone`` if it is about something that the run has not done according to its checkpoint.
        """
        events, bad, dropped, kept, is_torn = list[bytes](), list[int](), 0, 0, False
        with self._opened() as file:
            size = file.seek(0, os.SEEK_END)
            for start, line in lines_from_end(file):
                end, record = start + len(line), record_of(line)
                is_torn = is_torn or end == size  # no newline follows: truncated by a kill
                if record is None:
                    bad += [start] * (end < size)
                elif record["kind"] == "event":
                    if is_undone(record):
                        dropped += 1
                    else:
                        events.append(line + b"\n")
                elif record["step"] > step:
                    dropped += 1
                else:
                    kept = end
                    break
            numbers = line_numbers(file, bad)
        if dropped or bad or is_torn:
            before = chain(beginning(self.path, kept), [b"\n"]) if kept else ()
            atomic.write_parts(self.path, chain(before, reversed(events)))
        self._warn_of(numbers)  # only now that the log is rewritten: warnings of a training run are logged in it
        return dropped

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open the file; a missing one is read as empty."""
        try:
            with open_regular(self.path, LARGEST_LOG) if self.path.exists() else BytesIO() as file:
                yield file
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read, got {error.strerror or error}; restore the file") from error

    def _warn_of(self, bad: list[int]) -> None:
        if bad:
            _log.warning("%s", lines_left_out(str(self.path), bad))


def record_of(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line of the log; None if it lacks a key or has a type that no record of its kind has."""
    try:
        value = foreign_json_value(line)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    kind, step, epoch = value.get("kind"), value.get("step"), value.get("epoch", 0)
    if kind not in KINDS or type(step) is not int or type(epoch) is not int:
        return None
    if kind != "event":
        return value
    try:
        return with_types(value, _OF_EVENTS) if "event" in value else None
    except ValueError:
        return None


def measured(line: bytes) -> tuple[str, int] | None:
    """Return kind and step of a measurement that ``append`` wrote, without parsing its values; None for other lines."""
    found = _MEASUREMENT.match(line)
    return None if found is None else (found[1].decode(), int(found[2]))


class LogEvents(logging.Handler):
    """Logs ebclab's warnings as events of a run while entered, since no one reads a worker's console on a cluster."""

    def __init__(self, log: MetricsLog, *, active: bool = True) -> None:
        super().__init__(logging.WARNING)
        self._log, self._active = log, active

    def emit(self, record: logging.LogRecord) -> None:
        """Write one warning; nothing if the folder is gone or the disk full, which the run itself will notice."""
        with suppress(OSError, RunError):
            self._log.append("event", 0, event="warning", text=record.getMessage())

    def __enter__(self) -> None:
        if self._active:
            logging.getLogger("ebclab").addHandler(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        logging.getLogger("ebclab").removeHandler(self)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


BLOCK = 1 << 20
"""Bytes read at once."""


def lines_from_end(file: BinaryIO, having: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """Yield the offset of each line, in bytes, and the line without its newline, last line first.

    The file is not written to meanwhile; an empty rest after its last newline is not a line. Only lines ``having``
    these bytes are yielded; blocks without them are skipped quickly.
    """
    end = file.seek(0, os.SEEK_END)
    broken: list[bytes] = []  # parts of the line whose end was in earlier blocks, last part first
    for start in range((end - 1) // BLOCK * BLOCK, -1, -BLOCK):
        file.seek(start)
        block = file.read(min(BLOCK, end - start))
        if start + len(block) == end and block.endswith(b"\n"):
            block = block[:-1]
        if b"\n" not in block and start > 0:
            broken.append(block)
            continue
        block = b"".join([block, *reversed(broken)])
        first = 0 if start == 0 else block.index(b"\n") + 1
        broken = [block[: first - 1]] if first else []
        if having in block[first:]:
            yield from _reversed_lines(block[first:], start + first, having)


def _reversed_lines(text: bytes, start: int, having: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offset and content of each line in ``text``, which begins at offset ``start``, last line first."""
    end = start + len(text)
    for line in reversed(text.split(b"\n")):
        if having in line:
            yield end - len(line), line
        end -= len(line) + 1


def line_numbers(file: BinaryIO, starts: list[int]) -> list[int]:
    """Return the line numbers, counted from 1, of the lines that begin at ``starts``, in ascending order."""
    numbers, number, position = [], 1, file.seek(0)
    for start in sorted(starts):
        while position < start:
            block = file.read(min(BLOCK, start - position))
            number, position = number + block.count(b"\n"), position + len(block)
        numbers.append(number)
    return numbers


def beginning(path: Path, num_bytes: int) -> Iterator[bytes]:
    """Yield the first bytes of a file, block by block."""
    with path.open("rb") as file:
        for start in range(0, num_bytes, BLOCK):
            yield file.read(min(BLOCK, num_bytes - start))
