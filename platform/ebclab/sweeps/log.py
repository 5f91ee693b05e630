"""trials.jsonl: the log of a sweep, one JSON object per line. All decisions of a sweep depend on this file alone.

A trial is plain values, the same in a running sweep and when read from the log.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ebclab.config.names import is_folder_name
from ebclab.errors import RunError
from ebclab.evaluation.answers import Answers
from ebclab.regular_file import own_file, read_regular
from ebclab.storage import atomic
from ebclab.storage.mirror import Syncer
from ebclab.storage.reading import LARGEST_LOG, json_lines, lines_left_out, typed, with_types
from ebclab.storage.segmented_log import assembled
from ebclab.sweeps.space.space import Point, Settings

Kind = Literal["search", "confirm"]
State = Literal["waiting", "running", "finished", "stopped", "diverged", "failed", "interrupted"]
OVER: tuple[State, ...] = ("finished", "stopped", "diverged", "failed")
"""A trial in one of these states is never trained again; a resumed sweep continues all others."""
LOST: tuple[State, ...] = ("diverged", "failed")
"""Trials in these states do not count as measurements of their settings, whatever they measured before."""


@dataclass(frozen=True)
class Epoch:
    """Measurements of a trial after one of its epochs."""

    objective: float  # value that the sweep maximises, measured on held-out training images
    seconds: float  # training time of the trial up to this epoch
    metrics: dict[str, float] = field(default_factory=dict)  # all other measurements: scores, losses, diagnostics
    place: int = 0  # number of measurements of the sweep that were logged before it


@dataclass
class Trial:
    """One set of settings, and how far its training has come."""

    id: str  # name of the trial, such as 0007 or confirm-0001-seed2
    kind: Kind  # "search" looks for settings, "confirm" runs good ones again at full budget with other seeds
    number: int  # position in the order of proposals; for a confirming trial, the rank of its settings
    point: Point  # empty for a confirming trial
    settings: Settings
    seed: int  # seed of the run
    epochs: int  # budget
    state: State = "waiting"
    reason: str = ""  # why it ended before its budget, or what went wrong
    curve: dict[int, Epoch] = field(default_factory=dict)  # measurements by epochs done
    generation: int = 0  # how often the trial copied another trial's weights (population based training)
    exchanged: int = 0  # epoch of the newest exchange decision that the trial continued from; 0 before the first
    seconds: float = 0.0  # training time so far
    # the sum over launches of training time times the GPUs, or the share of one, that the trial had
    gpu_seconds: float = 0.0
    # which held-out images a confirming trial classifies correctly; None if not recorded
    answers: Answers | None = None

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def is_lost(self) -> bool:
        return self.state in LOST

    @property
    def epochs_done(self) -> int:
        """The newest epoch with a measurement; 0 before the first."""
        return max(self.curve, default=0)

    @property
    def last(self) -> Epoch | None:
        """The newest measurement; None before the first."""
        return self.curve[self.epochs_done] if self.curve else None

    @property
    def value(self) -> float:
        """The newest objective; nan before the first."""
        return self.last.objective if self.last else math.nan

    @property
    def objectives(self) -> dict[int, float]:
        return {epoch: point.objective for epoch, point in sorted(self.curve.items())}

    def objectives_by(self, place: int) -> dict[int, float]:
        """Return the objective by epochs done, of measurements at most at ``place`` in the log."""
        return {epoch: point.objective for epoch, point in sorted(self.curve.items()) if point.place <= place}

    @property
    def run_name(self) -> str:
        """Name of the trial's run folder; a trial that copies another one's weights gets a new one."""
        return self.id if self.generation == 0 else f"{self.id}-g{self.generation}"

    def spend(self, seconds: float, gpus: float) -> None:
        """Take the training time so far, of which the part that is new had so many GPUs."""
        self.gpu_seconds += (seconds - self.seconds) * gpus
        self.seconds = seconds


_OF_TRIALS = ("running", "epoch", "exchanged", "cloned", "waiting", "answered", "ended")
_PROPOSED = ("kind", "number", "point", "settings", "seed", "epochs")
LAUNCHES = ("started", "resumed")
_OF_MEASURING = ("running", "epoch", "waiting")
"""Events that can be recovered from run folders after a crash, so that nothing waits for their upload."""

Event = dict[str, Any]
"""A line of the log as plain values."""

_FIELDS = {
    **dict.fromkeys(("event", "time", "trial", "reason", "images"), str),
    **dict.fromkeys(("number", "seed", "epochs", "generation", "trials", "concurrent", "searches", "train_limit"), int),
    **dict.fromkeys(("seconds", "gpus_per_trial"), float),
    "kind": Kind,
    "state": State,
    "preempted": bool,
    "point": Point,
    "settings": Settings,
    "runs": list[str],
    "seeds": list[int],
    "warm_start": str | None,
    "earlier": list[tuple[Point, float]],
    "environment": dict[str, str | int | float | list[str] | None],
}
"""Types of the fields of all events but ``epoch``: the log may be someone else's."""

_log = logging.getLogger("ebclab.sweeps")


class SweepLog:
    """The events of a sweep on disk, and the trials that they describe in memory.

    Events of a trial: ``trial`` (proposed), ``running`` (a turn began), ``epoch`` (measured), ``waiting`` (waits for
    others), ``cloned`` (copied another trial's weights), ``exchanged`` (kept its own), ``answered`` (which held-out
    images it classifies correctly), ``ended``. Events with any other name change no trial and are stored in
    ``events``. Every event has a ``time`` in UTC.

    Args:
        path: The file; the first event creates it. Invalid lines are skipped with a warning.
        syncer: Uploads the file to the store that holds the sweep; None for a sweep on a disk.
        where: Name of the file in messages; its path if empty.

    Attributes:
        where: Name of the file in messages.
        problems: Problems found in the file when it was read, one sentence each.
        trials: Trials by id, in the order of their proposal.
        events: All other events.
        failure: Why the file cannot be uploaded; the sweep stops when it sees this. The error is not raised where it
            occurs, because that may be inside Ray Tune, which would show a traceback.
    """

    def __init__(self, path: Path, syncer: Syncer | None = None, where: str = "") -> None:
        self.path = path
        self.where = where or str(path)
        self.problems: list[str] = []
        self._syncer = syncer or Syncer()
        self.trials: dict[str, Trial] = {}
        self.events: list[Event] = []
        self.failure: RunError | None = None
        self._is_torn = False
        self._measured = 0  # epochs, of all trials
        self._gpus = 0.0  # of a trial, since the newest start or resume
        self._read()

    def append(self, event: str, **values: Any) -> None:
        """Write one event so that it survives a power cut, and apply it to its trial."""
        record = {"event": event, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **values}
        line = json_text(record) + "\n"
        try:
            is_new = not self.path.exists()
            with open(self.path, "a", encoding="utf-8", opener=own_file) as file:
                file.write("\n" + line if self._is_torn else line)
                self._is_torn = False
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                atomic.sync_path(self.path.parent)
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

    def propose(self, trial: Trial) -> Trial:
        """Log a new trial, and return it as the log knows it from now on."""
        self.append("trial", trial=trial.id, **{name: getattr(trial, name) for name in _PROPOSED})
        return self.trials[trial.id]

    def of_kind(self, kind: Kind) -> list[Trial]:
        """Return the trials of one kind, in the order of their proposal."""
        return [trial for trial in self.trials.values() if trial.kind == kind]

    def last_event(self, name: str) -> Event | None:
        """Return the newest event with this name among those that do not change trials; None if there is none."""
        return next((record for record in reversed(self.events) if record["event"] == name), None)

    @property
    def launch(self) -> Event:
        """The newest resume, else the start; empty before it."""
        return self.last_event("resumed") or self.last_event("started") or {}

    @property
    def learnt_from(self) -> Event:
        """The newest start or resume with the results of an earlier sweep; the start if none has them."""
        told = (record for record in reversed(self.events) if record["event"] in LAUNCHES and "earlier" in record)
        return next(told, None) or self.last_event("started") or {}

    @property
    def images(self) -> str:
        """Digest of the images that trials were trained on; empty before the first start, and in older versions."""
        launches = [record for record in self.events if record["event"] in LAUNCHES]
        return next((record["images"] for record in launches if "images" in record), "")

    def _read(self) -> None:
        if not self.path.exists():
            return
        raw = self._content()
        bad = []
        for number, record in json_lines(raw):
            try:
                record = record or {}  # ``_apply`` itself converts the fields of the many epochs
                self._apply(record if record.get("event") == "epoch" else with_types(record, _FIELDS))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                bad.append(number)
        for trial in self.trials.values():
            if trial.state == "running":  # the process that wrote this has ended
                trial.state = "interrupted"
        if bad:
            self.problems.append(lines_left_out(self.where, bad))
            _log.warning("%s", self.problems[-1])
        self._is_torn = raw != b"" and not raw.endswith(b"\n")  # truncated by a kill

    def _content(self) -> bytes:
        """Return the whole log; in a folder that was copied from a store, the log consists of several segments."""
        try:
            content = read_regular(self.path, LARGEST_LOG)
            return assembled(content, lambda part: read_regular(self.path.parent / part, LARGEST_LOG))
        except OSError as error:
            part = f", {error.filename}" if error.filename and str(error.filename) != str(self.path) else ""
            raise RunError(
                f"{self.where}: cannot be read, got {error.strerror or error}{part}; restore the file"
            ) from error
        except ValueError as error:
            raise RunError(f"{self.where}: damaged, {error}; restore the file") from error

    def _apply(self, record: Event) -> None:
        event = record["event"]
        if event == "trial":
            if not is_folder_name(record["trial"]):
                raise ValueError(f"not the name of a folder, got {record['trial']!r}")
            trial = Trial(record["trial"], **{name: record[name] for name in _PROPOSED})
            trial.point, trial.settings = dict(trial.point), dict(trial.settings)
            self.trials[trial.id] = trial
            return
        if event not in _OF_TRIALS:
            self.events.append(record)
            if event in LAUNCHES:
                self._gpus = gpus_of(record)
            return
        trial = self.trials[record["trial"]]
        if event in ("running", "waiting"):
            trial.state = event
        elif event == "epoch":
            metrics = {name: float(value) for name, value in record["metrics"].items()}  # "nan" and "inf" too
            point = Epoch(float(record["objective"]), float(record["seconds"]), metrics, self._measured)
            self._measured += 1
            trial.curve[int(record["epoch"])] = point
            trial.spend(point.seconds, self._gpus)
        elif event == "exchanged":
            trial.exchanged = int(record["epoch"])
        elif event == "answered":
            trial.answers = typed(record, Answers)
        elif event == "cloned":
            place, settings = dict(record["point"]), dict(record["settings"])
            trial.generation, trial.exchanged, trial.state = record["generation"], int(record["epoch"]), "waiting"
            trial.point, trial.settings = place, settings
        else:
            state, reason, seconds = record["state"], record["reason"], record["seconds"]
            trial.state, trial.reason = state, reason
            trial.spend(seconds, self._gpus)


def gpus_of(launch: Mapping[str, Any]) -> float:
    """Return the GPUs of a trial, or the share of one, that a start or a resume has written down; 0 without any."""
    return float(launch.get("gpus_per_trial", 0.0))


def sharing_a_gpu(launch: Mapping[str, Any]) -> int:
    """Return how many trials could share a GPU after a start or a resume; 0 if each had whole ones, or none."""
    share, concurrent = gpus_of(launch), int(launch.get("concurrent", 0)) * int(launch.get("searches", 1))
    return min(concurrent, int(1 / share + 1e-9)) if 0 < share < 1 else 0


def json_text(value: Any) -> str:
    """Return ``value`` as JSON, as ``finite`` has it; only what has nan or infinity somewhere is copied by it."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), allow_nan=False)


def finite(value: Any) -> Any:
    """Return ``value`` with nan and infinity as text, which ``float`` reads back: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
