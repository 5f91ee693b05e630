"""Which runs and sweeps there are, how far they came and what room they take."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ebclab.config import load_yaml_file
from ebclab.errors import UserError
from ebclab.evaluation.objectives import shown_score
from ebclab.inventory.folders import RunCollection
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.proposals import ranked

State = Literal["running", "finished", "unfinished", "unreadable"]
_DAMAGE = (UserError, OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class Entry:
    """A run or a sweep.

    Attributes:
        name: Name of its folder.
        method: Name of the method.
        data: Name of the dataset.
        done: Epochs of a run, searching trials of a sweep that are over; with what was asked for.
        score: Held-out objective: a run's newest, a sweep's winner's mean or, before that, best trial's; or empty.
        state: Where it stands.
        num_bytes: Size of all its files.
        age: Seconds since something happened in it.
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
    return sorted(path.parent for path in folder.glob("*/config.yaml"))


def sweep_paths(folder: Path) -> list[Path]:
    """Return the folders of the sweeps in ``folder``."""
    return sorted(path.parent for path in folder.glob("*/sweep.yaml"))


def inventory(runs: RunCollection, sweeps: RunCollection) -> list[Entry]:
    """Return the runs in one folder and the sweeps in another, newest first; what cannot be read is listed as such."""
    entries = [_entry(runs, path, _of_run, "metrics.jsonl") for path in run_paths(runs.path)]
    entries += [_entry(sweeps, path, _of_sweep, "trials.jsonl") for path in sweep_paths(sweeps.path)]
    return sorted(entries, key=lambda entry: entry.age)


def room(paths: Iterable[Path]) -> int:
    """Return the bytes of all files in some folders; a file with several names counts once."""
    sizes = {(stat.st_dev, stat.st_ino): stat.st_size for stat in _files(paths)}
    return sum(sizes.values())


def room_freed(paths: Iterable[Path]) -> int:
    """Return the bytes that removing some folders frees: files that have another name elsewhere stay."""
    stats = list(_files(paths))
    names = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    sizes = {(s.st_dev, s.st_ino): s.st_size for s in stats if names[s.st_dev, s.st_ino] >= s.st_nlink}
    return sum(sizes.values())


def _files(paths: Iterable[Path]) -> Iterable[Any]:
    for path in paths:
        for file in path.rglob("*"):
            try:
                stat = file.lstat()
                if file.is_file() or file.is_symlink():
                    yield stat
            except OSError:
                continue  # gone since it was listed


def _entry(collection: RunCollection, path: Path, read: Any, log: str) -> Entry:
    stored = collection.num_bytes(path.name)
    size, age = room([path]) if stored is None else stored, _age(collection, path.name, log)
    try:
        method, data, done, score, finished = read(path, collection)
    except _DAMAGE:
        return Entry(path.name, "", "", "", "", "unreadable", size, age)
    state: State = "running" if collection.is_running(path.name) else "finished" if finished else "unfinished"
    return Entry(path.name, method, data, done, score, state, size, age)


def _of_run(path: Path, collection: RunCollection) -> tuple[str, str, str, str, bool]:
    run = RunFolder(path)
    config = load_yaml_file(run.config_path)  # as text: the method may be the user's own, the file an older one
    result = run.read_result()
    if result is not None:
        facts = {"epochs_done": result["epochs"], "scores": result["scores"]}
    else:
        facts = _newest_facts(run, collection)
    done = f"{facts['epochs_done']}/{config['training']['epochs']} epochs"
    objective = config["evaluation"]["objective"]
    score = _shown(objective, facts["scores"].get(objective))
    return config["method"]["name"], config["data"]["name"], done, score, result is not None


def _newest_facts(run: RunFolder, collection: RunCollection) -> dict[str, Any]:
    """Return what the newest checkpoint says, which the store may have and the copy has not."""
    if collection.remote is not None:
        manifest = collection.newest_manifest(run.path.name)
    else:
        newest = checkpoint.latest_path(run.checkpoints)
        manifest = json.loads((newest / "manifest.json").read_text(encoding="utf-8")) if newest else None
    return {"epochs_done": 0, "scores": {}} if manifest is None else dict(manifest["facts"])


def _of_sweep(path: Path, collection: RunCollection) -> tuple[str, str, str, str, bool]:
    folder = SweepFolder(path)
    plan = load_yaml_file(folder.plan)
    config, trials = plan["config"], folder.read_log().of_kind("search")
    done = f"{sum(trial.is_over for trial in trials)}/{plan['trials']} trials"
    value: Any = None
    if folder.result.is_file():
        winner = json.loads(folder.result.read_text(encoding="utf-8"))["winner"]
        value = winner.get("mean", winner["values"][0])
    elif order := ranked(trials):
        value = order[0].objectives[order[0].epochs_done]
    score = _shown(config["evaluation"]["objective"], value)
    return config["method"]["name"], config["data"]["name"], done, score, folder.result.is_file()


def _shown(objective: str, value: Any) -> str:
    return "" if value is None or math.isnan(float(value)) else shown_score(objective, float(value))


def _age(collection: RunCollection, name: str, log: str) -> float:
    times = [collection.changed(name, file) for file in (log, "result.json", "config.yaml", "sweep.yaml")]
    return time.time() - max((each for each in times if each is not None), default=time.time())
