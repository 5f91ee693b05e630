"""metrics.jsonl, the log of a run: every measurement and every decision, one JSON object per line."""

from __future__ import annotations

import json
import logging
import math
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from ebclab.storage import atomic


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
        """Return every whole record, without a last line that a kill cut short."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return records

    def forget_after(self, step: int) -> int:
        """Drop the measurements after ``step``, which a resume makes again; events stay.

        Returns:
            The number of dropped records.
        """
        before = self.records()
        kept = [record for record in before if record["step"] <= step or record["kind"] == "event"]
        atomic.write_text(self.path, "".join(json.dumps(record) + os.linesep for record in kept))
        return len(before) - len(kept)


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
        """Write one warning."""
        self._log.append("event", 0, event="warning", text=record.getMessage())

    def __enter__(self) -> None:
        if self._active:
            logging.getLogger("ebclab").addHandler(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        logging.getLogger("ebclab").removeHandler(self)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
