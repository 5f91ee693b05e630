"""A sweep's folder as a report reads it: nothing is written there, and Ray is not needed."""

from __future__ import annotations

import fcntl
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ebclab.errors import RunError
from ebclab.evaluation.objectives import OBJECTIVES, shown_score
from ebclab.storage.lease import held_by
from ebclab.storage.lock import LOCK
from ebclab.storage.object_store import Store
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import ranked
from ebclab.sweeps.trial import Trial
from energy_contrast.method import Method


@dataclass(frozen=True)
class SweepRecord:
    """What a sweep has left on disk.

    Attributes:
        folder: Where it lies.
        plan: What it is.
        log: What happened.
        notes: What could not be read, one sentence each.
        is_finished: It has concluded.
        is_running: A process works on it at this moment.
        read_at: Time of the log's newest line.
    """

    folder: SweepFolder
    plan: SweepPlan
    log: SweepLog
    notes: tuple[str, ...]
    is_finished: bool
    is_running: bool
    read_at: datetime

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.path.name

    @property
    def title(self) -> str:
        """Method and data."""
        return f"{self.plan.config.method_name} on {self.plan.config.data.name}"

    @property
    def objective(self) -> str:
        """Key of the objective."""
        return self.plan.config.evaluation.objective

    @property
    def objective_words(self) -> str:
        """The objective as a person calls it."""
        return OBJECTIVES[self.objective]

    def shown(self, value: float) -> str:
        """Return a value of the objective as a person reads it."""
        return shown_score(self.objective, value)

    @cached_property
    def search(self) -> list[Trial]:
        """The trials that search, in the order of their proposal."""
        return self.log.of_kind("search")

    @cached_property
    def order(self) -> list[Trial]:
        """Those that measured anything, best first; diverged and failed ones left out."""
        return ranked(self.search)

    @cached_property
    def start(self) -> dict[str, Any]:
        """What was written down when the sweep was begun or last resumed; empty when nothing was."""
        return self.log.last_event("resumed") or self.log.last_event("started") or {}

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where the sweep's own process ran."""
        found = self.start.get("environment")
        return dict(found) if isinstance(found, Mapping) else {}

    @property
    def gpus_per_trial(self) -> float:
        """GPUs of a trial, or the share of one."""
        found = self.start.get("gpus_per_trial", 0.0)
        return float(found) if isinstance(found, int | float) else 0.0

    @cached_property
    def machines(self) -> list[str]:
        """The machines that trials ran on, as their run folders tell."""
        found = {_machine(_json(path)): None for path in sorted(self.folder.trials.glob("*/environment.json"))}
        return [name for name in found if name] or [name for name in [_machine(self.environment)] if name]

    @cached_property
    def split(self) -> tuple[int, int] | None:
        """Training and held-out images, as the result of any finished run tells."""
        for path in sorted(self.folder.trials.glob("*/result.json")):
            found = _json(path)
            if "train_images" in found and "holdout_images" in found:
                return int(found["train_images"]), int(found["holdout_images"])
        return None


def read_sweep(where: str | Path, methods: Mapping[str, type[Method]] | None = None) -> SweepRecord:
    """Return what a sweep has left, finished or not.

    Args:
        where: Its folder, or its address in an object store.
        methods: Methods by name; None takes the catalogue's.

    Raises:
        UserError: There is no sweep, or its plan cannot be read.
    """
    folder = SweepFolder.at(where).of("reader").pull_all()
    plan = folder.read_plan(methods)
    is_running = bool(held_by(folder.remote)) if folder.remote else _is_held(folder.path / LOCK)
    try:
        with _warnings() as notes:
            log = folder.read_log()
        read_at = _changed(folder, folder.log if folder.log.exists() else folder.plan)
    except OSError as error:
        raise RunError(f"{folder.address}: {folder.log.name} cannot be read, got {error.strerror or error}") from error
    for trial in log.trials.values():
        if is_running and trial.state == "interrupted" and not trial.reason:
            trial.state = "running"
    return SweepRecord(folder, plan, log, tuple(notes), folder.result.exists(), is_running, read_at)


def _changed(folder: SweepFolder, path: Path) -> datetime:
    """Return when a file of a sweep was written, by the store's clock when it lies in one."""
    found = Store(folder.remote).stored(path.name) if folder.remote else None
    return found.changed if found and found.changed else datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _is_held(lock: Path) -> bool:
    """Return whether another process holds a lock file; ours is let go at once."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Yield a list that fills with what the log has to say about its file."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("ebclab.sweeps")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


def _json(path: Path) -> dict[str, Any]:
    """Return a JSON object on disk, or an empty one when there is none: a running trial's file may be half there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _machine(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    device, threads = environment.get("device", "cpu"), environment.get("threads")
    processor = f"{environment.get('processor') or 'unknown processor'}, {environment.get('cores', '?')} cores"
    on = "" if device == "cpu" else f"{device}, "
    own = f", {threads} thread{'' if threads == 1 else 's'} a trial" if threads else ""
    return f"{on}{processor}, {environment.get('machine', '')}{own}"
