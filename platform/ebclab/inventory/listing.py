"""List runs and sweeps: how far they came, how good they are, how much disk they use."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebclab.errors import UserError
from ebclab.inventory.files import Files, folders_with
from ebclab.inventory.folders import RunCollection
from ebclab.inventory.progress import Content, content_of_run

State = Literal["running", "finished", "unfinished", "unreadable"]
_DAMAGE = (UserError, OSError, ValueError, KeyError, TypeError, AttributeError)
_DATED = ("metrics.jsonl", "trials.jsonl", "result.json", "config.yaml", "sweep.yaml")
"""Files whose newest one tells when something last happened."""


@dataclass(frozen=True)
class Entry:
    """A run or a sweep.

    Attributes:
        name: Name of its folder.
        method: Name of the method.
        data: Name of the dataset.
        done: Epochs that a run has trained, or search trials of a sweep that are over, of how many.
        score: Held-out objective: of a run its newest; of a sweep the winner's mean, or the best trial's value while it
            has no winner. Empty when nothing was measured.
        state: running, finished, unfinished or unreadable.
        num_bytes: Size of all files.
        age: Seconds since the last event.
    """

    name: str
    method: str
    data: str
    done: str
    score: str
    state: State
    num_bytes: int
    age: float


def run_paths(folder: Path) -> list[Path]:
    """Return the folders of the runs in ``folder``."""
    return folders_with(folder, "config.yaml")


def sweep_paths(folder: Path) -> list[Path]:
    """Return the folders of the sweeps in ``folder``."""
    return folders_with(folder, "sweep.yaml")


def inventory(runs: RunCollection, sweeps: RunCollection) -> list[Entry]:
    """Return the runs in one folder and the sweeps in another, newest first; damaged ones are listed as unreadable."""
    entries = runs.each(run_paths(runs.path), lambda path: _entry(runs, path, content_of_run))
    if there := sweep_paths(sweeps.path):
        from ebclab.inventory.sweep_progress import content_of_sweep  # takes seconds, which a list of runs need not

        entries += sweeps.each(there, lambda path: _entry(sweeps, path, lambda path, *_: content_of_sweep(path)))
    return sorted(entries, key=lambda entry: entry.age)


def _entry(collection: RunCollection, path: Path, read: Callable[[Path, Files, RunCollection], Content]) -> Entry:
    files = collection.files(path.name)
    now = time.time()
    age = now - max((files.changed[name] for name in _DATED if name in files.changed), default=now)
    try:
        content = read(path, files, collection)
    except _DAMAGE:
        return Entry(path.name, "", "", "", "", "unreadable", files.num_bytes, age)
    is_running = collection.is_running(path.name, files)
    state: State = "running" if is_running else "finished" if content.is_finished else "unfinished"
    return Entry(path.name, content.method, content.data, content.done, content.score, state, files.num_bytes, age)
