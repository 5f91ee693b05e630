"""metrics.jsonl, the log of a run: every measurement and every decision, one JSON object per line."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from ebclab.errors import RunError
from ebclab.regular_file import read_regular
from ebclab.storage import atomic
from ebclab.storage.reading import LARGEST_LOG, json_lines, lines_left_out

_log = logging.getLogger("ebclab.training")


class MetricsLog:
    """Append-only log of a run.

    Every record has ``kind`` ("train", "epoch" or "event") and ``step``. Records of one kind share their other keys.

    Args:
        path: The file; created on the first record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, step: int, **values: Any) -> None:
        """Write one record. Numbers that are not finite become strings, because JSON has none."""
        record = {"kind": kind, "step": step} | {key: _plain(value) for key, value in values.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def sync(self) -> None:
        """Make the records written so far survive a power cut."""
        if self.path.exists():
            atomic.sync_path(self.path)
            atomic.sync_path(self.path.parent)

    def records(self) -> list[dict[str, Any]]:
        """Return every whole record; a last line that a kill cut short is left out, others with a warning.

        Raises:
            RunError: The file cannot be read.
        """
        records, bad = self._read()
        self._warn_of(bad)
        return records

    def newest_measured(self) -> int | None:
        """Return the step of the newest measurement; None when nothing was measured.

        Raises:
            RunError: The file cannot be read.
        """
        return max((record["step"] for record in self._read()[0] if record["kind"] != "event"), default=None)

    def forget_after(self, step: int, is_undone: Callable[[Mapping[str, Any]], bool] = lambda event: False) -> int:
        """Drop the measurements after ``step``, which a resume makes again, and undone events; the others stay.

        Lines that cannot be read are dropped with a warning.

        Args:
            step: The step that the run goes back to.
            is_undone: Whether an event tells of something that the run has not done, as its checkpoint says.

        Returns:
            The number of dropped records.

        Raises:
            RunError: The file cannot be read.
        """
        before, bad = self._read()
        kept = [
            record
            for record in before
            if (not is_undone(record) if record["kind"] == "event" else record["step"] <= step)
        ]
        atomic.write_text(self.path, "".join(json.dumps(record) + os.linesep for record in kept))
        self._warn_of(bad)  # after the log was written: while a run trains, its warnings are events of the log
        return len(before) - len(kept)

    def _read(self) -> tuple[list[dict[str, Any]], list[int]]:
        """Return every whole record, and the numbers of the lines that are none."""
        if not self.path.exists():
            return [], []
        try:
            content = read_regular(self.path, LARGEST_LOG)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read, got {error.strerror or error}; restore the file") from error
        records, bad = [], []
        for number, record in json_lines(content):
            if record is not None and is_record(record):
                records.append(record)
            else:
                bad.append(number)
        is_torn = content != b"" and not content.endswith(b"\n")
        return records, bad[:-1] if is_torn and bad and bad[-1] == len(content.splitlines()) else bad

    def _warn_of(self, bad: list[int]) -> None:
        if bad:
            _log.warning("%s", lines_left_out(str(self.path), bad))


def is_record(value: Mapping[str, Any]) -> bool:
    """Return whether a line of the log has what every record of its kind has."""
    kind, step, epoch = value.get("kind"), value.get("step"), value.get("epoch", 0)
    return kind in ("train", "epoch", "event") and type(step) is int and type(epoch) is int


class LogEvents(logging.Handler):
    """Logs ebclab's warnings as events of a run while entered, because nobody reads a worker's console on a cluster.

    Args:
        log: The run's log.
        active: False means to do nothing.
    """

    def __init__(self, log: MetricsLog, *, active: bool = True) -> None:
        super().__init__(logging.WARNING)
        self._log, self._active = log, active

    def emit(self, record: logging.LogRecord) -> None:
        """Write one warning; without the run's folder there is no log, and the run is about to notice."""
        with suppress(FileNotFoundError):
            self._log.append("event", 0, event="warning", text=record.getMessage())

    def __enter__(self) -> None:
        if self._active:
            logging.getLogger("ebclab").addHandler(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        logging.getLogger("ebclab").removeHandler(self)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
