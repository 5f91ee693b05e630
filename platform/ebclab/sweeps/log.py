"""trials.jsonl: one JSON object a line, the only truth about a sweep. Everything a sweep decides follows from it."""

from __future__ import annotations

import json
import logging
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebclab.errors import RunError
from ebclab.storage.segmented_log import assembled
from ebclab.storage.sync import NoSync, Syncer
from ebclab.sweeps.trial import Epoch, Kind, Trial

_OF_TRIALS = ("running", "epoch", "exchanged", "cloned", "waiting", "ended")
_OF_MEASURING = ("running", "epoch", "waiting")
"""Events that a run folder tells again after a crash."""

_log = logging.getLogger("ebclab.sweeps")


class SweepLog:
    """The events of a sweep on disk, and the trials they tell of in memory.

    Events: ``trial`` (proposed), ``running`` (begun or gone on), ``epoch`` (measured), ``waiting`` (has to wait for
    others), ``cloned`` (goes on from another trial's weights), ``exchanged`` (goes on from its own), ``ended``; any
    other name is kept in ``events`` and changes no trial. Every event has ``time``, in UTC.

    Args:
        path: The file; made with the first event. Lines that cannot be read are skipped with a warning.
        syncer: Brings it to where the sweep lives. What is proposed is there before anybody acts upon it.
        where: What warnings call the file; its path when empty.

    Attributes:
        trials: Trials by id, in the order of their proposal.
        events: All other events.
        failure: Why the log cannot be brought to where the sweep lives; a sweep that sees one stops. It is not raised
            where it happens, since that may be inside Ray Tune, which would make a traceback of it.
    """

    def __init__(self, path: Path, syncer: Syncer | None = None, where: str = "") -> None:
        self.path = path
        self._where = where or str(path)
        self._syncer = syncer or NoSync()
        self.trials: dict[str, Trial] = {}
        self.events: list[dict[str, Any]] = []
        self.failure: RunError | None = None
        self._is_torn = False
        self._read()

    def append(self, event: str, **values: Any) -> None:
        """Write one event, so that it survives a power cut, and apply it.

        Raises:
            RunError: The file cannot be written.
        """
        record = {"event": event, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **values}
        line = json.dumps(finite(record), allow_nan=False) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + line if self._is_torn else line)
                self._is_torn = False
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written, got {error.strerror or error}") from error
        self._apply(record)
        if event in _OF_MEASURING:
            self._syncer.push_soon()
            return
        try:
            self._syncer.push()
        except RunError as error:
            self.failure = self.failure or error

    def of_kind(self, kind: Kind) -> list[Trial]:
        """Return the trials of one kind, in the order of their proposal."""
        return [trial for trial in self.trials.values() if trial.kind == kind]

    def last_event(self, name: str) -> dict[str, Any] | None:
        """Return the newest event of a name that changes no trial."""
        return next((record for record in reversed(self.events) if record["event"] == name), None)

    def _read(self) -> None:
        if not self.path.exists():
            return
        beside = self.path.parent  # parts lie there when somebody has copied the folder out of a store
        raw = assembled(self.path.read_bytes(), lambda part: (beside / part).read_bytes())
        bad = []
        for number, line in enumerate(raw.splitlines(), start=1):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                bad.append(number)
        for trial in self.trials.values():
            if trial.state == "running":  # whoever wrote that is gone
                trial.state = "interrupted"
        if bad:
            shown = ", ".join(map(str, bad[:5])) + (" ..." if len(bad) > 5 else "")
            _log.warning("%s: %d of its lines cannot be read and are left out: %s", self._where, len(bad), shown)
        self._is_torn = raw != b"" and not raw.endswith(b"\n")  # cut short by a kill

    def _apply(self, record: dict[str, Any]) -> None:
        event = record["event"]
        if event == "trial":
            trial = _new_trial(record)
            self.trials[trial.id] = trial
            return
        if event not in _OF_TRIALS:
            self.events.append(record)
            return
        trial = self.trials[record["trial"]]
        if event in ("running", "waiting"):
            trial.state = event
        elif event == "epoch":
            point = Epoch(float(record["objective"]), float(record["seconds"]), _numbers(record["metrics"]))
            trial.curve[int(record["epoch"])] = point
            trial.seconds = point.seconds
        elif event == "exchanged":
            trial.exchanged = int(record["epoch"])
        elif event == "cloned":
            place, settings = dict(record["point"]), dict(record["settings"])
            trial.generation, trial.exchanged, trial.state = int(record["generation"]), int(record["epoch"]), "waiting"
            trial.point, trial.settings = place, settings
        else:
            trial.state, trial.reason, trial.seconds = record["state"], record["reason"], float(record["seconds"])


def _new_trial(record: dict[str, Any]) -> Trial:
    return Trial(
        id=str(record["trial"]),
        kind=record["kind"],
        number=int(record["number"]),
        point=dict(record["point"]),
        settings=dict(record["settings"]),
        seed=int(record["seed"]),
        epochs=int(record["epochs"]),
    )


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """Return metrics as numbers; JSON has no infinity, so such values were written as text."""
    return {name: float(value) for name, value in metrics.items()}


def finite(value: Any) -> Any:
    """Return ``value`` with every number that JSON cannot hold as text, which ``float`` reads back."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
