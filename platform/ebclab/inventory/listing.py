"""List runs and sweeps: how far they came, how good they are, how much disk they use."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from ebclab.config import load_yaml_file
from ebclab.errors import UserError
from ebclab.evaluation.objectives import shown_score
from ebclab.inventory.folders import RunCollection
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.storage.reading import read_json_object
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.proposals import ranked
from ebclab.sweeps.results import SweepResult

State = Literal["running", "finished", "unfinished", "unreadable"]
_DAMAGE = (UserError, OSError, ValueError, KeyError, TypeError, AttributeError)


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
    return _folders_with(folder, "config.yaml")


def sweep_paths(folder: Path) -> list[Path]:
    """Return the folders of the sweeps in ``folder``."""
    return _folders_with(folder, "sweep.yaml")


def _folders_with(folder: Path, file: str) -> list[Path]:
    """Return the folders that hold ``file``, without hidden ones, which are about to be deleted."""
    return sorted(path.parent for path in folder.glob(f"*/{file}") if not path.parent.name.startswith("."))


def inventory(runs: RunCollection, sweeps: RunCollection) -> list[Entry]:
    """Return the runs in one folder and the sweeps in another, newest first; damaged ones are listed as unreadable."""
    entries = [_entry(runs, path, _of_run, "metrics.jsonl") for path in run_paths(runs.path)]
    entries += [_entry(sweeps, path, _of_sweep, "trials.jsonl") for path in sweep_paths(sweeps.path)]
    return sorted(entries, key=lambda entry: entry.age)


def room(paths: Iterable[Path]) -> int:
    """Return the bytes of all files in ``paths``; a file with several names counts once."""
    sizes = {(stat.st_dev, stat.st_ino): stat.st_size for stat in _files(paths)}
    return sum(sizes.values())


def room_freed(paths: Iterable[Path]) -> int:
    """Return the bytes that deleting ``paths`` frees: a file that has another name elsewhere stays."""
    stats = list(_files(paths))
    names = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    sizes = {(s.st_dev, s.st_ino): s.st_size for s in stats if names[s.st_dev, s.st_ino] >= s.st_nlink}
    return sum(sizes.values())


def _files(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        for file in path.rglob("*"):
            try:
                stat = file.lstat()
                if file.is_file() or file.is_symlink():
                    yield stat
            except OSError:
                continue  # gone since it was listed


class _Content(NamedTuple):
    """What the files of a run or a sweep say; the fields are those of ``Entry``."""

    method: str
    data: str
    done: str
    score: str
    is_finished: bool


class _Progress(NamedTuple):
    """How far a run came: epochs done, and its newest held-out scores by name."""

    epochs_done: int
    scores: Mapping[str, float]


def _entry(collection: RunCollection, path: Path, read: Callable[[Path, RunCollection], _Content], log: str) -> Entry:
    stored = collection.num_bytes(path.name)
    size, age = room([path]) if stored is None else stored, _age(collection, path.name, log)
    try:
        content = read(path, collection)
    except _DAMAGE:
        return Entry(path.name, "", "", "", "", "unreadable", size, age)
    is_running = collection.is_running(path.name)
    state: State = "running" if is_running else "finished" if content.is_finished else "unfinished"
    return Entry(path.name, content.method, content.data, content.done, content.score, state, size, age)


def _of_run(path: Path, collection: RunCollection) -> _Content:
    run = RunFolder(path)
    config = load_yaml_file(run.config_path)  # unchecked: the method may be the user's own, the file an older one
    summary = run.read_result()
    progress = _Progress(summary.epochs, summary.scores) if summary else _newest_progress(run, collection)
    training = config["training"]
    done = f"{progress.epochs_done}/{training['epochs']} epochs"
    if ends := training.get("extended"):
        done += f" (extended from {', '.join(str(end) for end in ends)})"
    objective = config["evaluation"]["objective"]
    score = _shown(objective, progress.scores.get(objective))
    return _Content(config["method"]["name"], config["data"]["name"], done, score, summary is not None)


def _newest_progress(run: RunFolder, collection: RunCollection) -> _Progress:
    """Return what the newest checkpoint says; of a run in a store, the newest one there."""
    if collection.remote is not None:
        manifest = collection.newest_manifest(run.path.name)
    else:
        newest = checkpoint.latest_path(run.checkpoints)
        manifest = read_json_object(newest / "manifest.json") if newest else None
    if manifest is None:
        return _Progress(0, {})
    return _Progress(manifest["facts"]["epochs_done"], manifest["facts"]["scores"])


def _of_sweep(path: Path, collection: RunCollection) -> _Content:
    folder = SweepFolder(path)
    plan = load_yaml_file(folder.plan)
    config, trials = plan["config"], folder.read_log().of_kind("search")
    done = f"{sum(trial.is_over for trial in trials)}/{plan['trials']} trials"
    value: float | None = None
    is_finished = folder.result.is_file()
    if is_finished:
        value = SweepResult.read(folder.result).winner.mean
    elif best_first := ranked(trials):
        value = best_first[0].objectives[best_first[0].epochs_done]
    score = _shown(config["evaluation"]["objective"], value)
    return _Content(config["method"]["name"], config["data"]["name"], done, score, is_finished)


def _shown(objective: str, value: float | None) -> str:
    return "" if value is None or math.isnan(value) else shown_score(objective, value)


def _age(collection: RunCollection, name: str, log: str) -> float:
    times = [collection.changed(name, file) for file in (log, "result.json", "config.yaml", "sweep.yaml")]
    return time.time() - max((each for each in times if each is not None), default=time.time())
