"""List runs and sweeps: state, progress, scores, size, from as few of their files as possible."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ebclab.config import load_yaml_file
from ebclab.errors import UserError
from ebclab.evaluation.objectives import format_of
from ebclab.formatting import age, count, size
from ebclab.inventory.folders import Files, RunCollection, folders_with
from ebclab.inventory.written import settings_at
from ebclab.runs.summary import RunSummary
from ebclab.storage.kinds import COMPARISON, RUN, SWEEP

_SETTINGS = ("method.name", "data.name", "training.epochs", "evaluation.objective")


class Content(NamedTuple):
    """Settings, progress and scores of a run or sweep."""

    method: str  # name of the method
    data: str  # name of the dataset
    done: int  # number of completed epochs of a run, or of ended search trials of a sweep
    of: int  # planned number of epochs or search trials
    objective: str  # name of the score used as objective
    # held-out scores by name: the newest of a run; the winner's mean of a sweep, or the best trial's value if there is
    # no winner yet. Empty if nothing was measured
    scores: Mapping[str, float]
    is_finished: bool  # whether it has a result
    note: str = ""  # additional remark on the progress


class _Progress(NamedTuple):
    """Progress of a run: completed epochs, and its newest held-out scores by name."""

    epochs_done: int
    scores: Mapping[str, float]


def content_of_run(path: Path, files: Files, collection: RunCollection) -> Content:
    """Return settings, progress and scores of a run, read from its folder or its local copy."""
    is_finished, file = RUN.result in files.changed, path / RUN.result
    method, data, epochs, objective, *ends = _settings(path / RUN.settings, with_extensions=not is_finished)
    if is_finished:
        summary = RunSummary.read(file, str(file))
        progress = _Progress(summary.epochs, summary.scores)
        ends = [extension.before for extension in summary.extensions]
    else:
        manifest = collection.newest_manifest(path.name, files)
        progress = _Progress(0, {})
        if manifest is not None:
            progress = _Progress(manifest["facts"]["epochs_done"], manifest["facts"]["scores"])
    note = f"(extended from {', '.join(map(str, ends))})" if ends else ""
    scores = {name: float(value) for name, value in progress.scores.items()}
    return Content(str(method), str(data), int(progress.epochs_done), int(epochs), objective, scores, is_finished, note)


def content_of_sweep(path: Path) -> Content:
    """Return settings, progress and score of a sweep, read from its folder or its local copy."""
    from ebclab.sweeps.folder import SweepFolder  # imported here: takes seconds
    from ebclab.sweeps.proposals import ranked
    from ebclab.sweeps.results import SweepResult

    folder = SweepFolder(path)
    plan = load_yaml_file(folder.plan)
    config, trials = plan["config"], folder.read_log().of_kind("search")
    done, objective = sum(trial.is_over for trial in trials), config["evaluation"]["objective"]
    value: float | None = None
    is_finished = folder.result.is_file()
    if is_finished:
        value = SweepResult.read(folder.result).winner.mean
    elif best_first := ranked(trials):
        value = best_first[0].objectives[best_first[0].epochs_done]
    scores = {} if value is None else {objective: value}
    method, data = str(config["method"]["name"]), str(config["data"]["name"])
    return Content(method, data, done, int(plan["trials"]), objective, scores, is_finished)


def _settings(path: Path, with_extensions: bool) -> list[Any]:
    """Return the settings of a run, not validated, and the planned epochs before each extension, if there are any."""
    if with_extensions:
        with suppress(KeyError):  # a run of an older version has no such setting
            *values, ends = settings_at(path, (*_SETTINGS, "training.extended"))
            return [*values, *ends]
    return settings_at(path, _SETTINGS)


KindName = Literal["run", "sweep", "comparison"]
State = Literal["running", "finished", "unfinished", "unreadable"]
_DAMAGE = (UserError, OSError, ValueError, KeyError, TypeError, AttributeError)
_DATED = RUN.files | SWEEP.files | COMPARISON.files
"""Files whose newest modification time is that of the folder."""
_Read = Callable[[Path, Files, RunCollection], Content]


@dataclass(frozen=True)
class Entry:
    """A run, a sweep or a comparison."""

    name: str  # name of its folder
    kind: KindName  # what it is
    address: str  # path or address of its folder
    state: State  # running, finished, unfinished or unreadable
    content: Content | None  # content of its files; None if they cannot be read
    num_bytes: int  # total size of its files in bytes
    changed: float  # time of the last change, in seconds since 1970

    @property
    def value(self) -> float | None:
        """Held-out objective; None if it was not measured or is not finite."""
        return None if self.content is None else self.score(self.content.objective)

    def score(self, name: str) -> float | None:
        """Return a held-out score; None if it was not measured or is not finite."""
        value = None if self.content is None else self.content.scores.get(name)
        return value if value is not None and math.isfinite(value) else None

    def in_words(self, now: float) -> dict[str, str]:
        """Return the cells of a table row by column, with the age at time ``now`` in seconds since 1970."""
        content, value = self.content, self.value
        row = {"name": self.name, "method": "", "data": "", "done": "", "score": "", "state": self.state}
        if content is not None:
            unit = {"run": "epoch", "sweep": "trial", "comparison": "sweep"}[self.kind]
            done = f"{content.done}/{count(content.of, unit)} {content.note}".strip()
            score = "" if value is None else format_of(content.objective).number(value)
            row |= {"method": content.method, "data": content.data, "done": done, "score": score}
        return row | {"size": size(self.num_bytes), "age": age(now - self.changed)}

    def to_mapping(self) -> dict[str, Any]:
        """Return the entry as plain values; the content is omitted if it cannot be read, unknown scores are None."""
        facts = {
            "name": self.name,
            "kind": self.kind,
            "address": self.address,
            "state": self.state,
            "bytes": self.num_bytes,
            "changed": datetime.fromtimestamp(self.changed, UTC).isoformat(timespec="seconds"),
        }
        content = self.content
        if content is None:
            return facts
        told = {"method": content.method, "data": content.data, "done": content.done, "of": content.of}
        scores = {name: self.score(name) for name in content.scores}
        return {**facts, **told, "objective": content.objective, "value": self.value, "scores": scores}


def run_paths(folder: Path) -> list[Path]:
    """Return the folders of the runs in ``folder``."""
    return folders_with(folder, RUN.settings)


def sweep_paths(folder: Path) -> list[Path]:
    """Return the folders of the sweeps in ``folder``."""
    return folders_with(folder, SWEEP.settings)


def inventory(runs: RunCollection, sweeps: RunCollection, comparisons: RunCollection | None = None) -> list[Entry]:
    """Return the runs, sweeps and comparisons in these folders, newest first; corrupt ones are listed as unreadable."""
    entries = runs.each(run_paths(runs.path), lambda path: _entry(runs, path, "run", content_of_run))
    entries += sweeps.each(
        sweep_paths(sweeps.path), lambda path: _entry(sweeps, path, "sweep", lambda path, *_: content_of_sweep(path))
    )
    if comparisons is not None:
        there = folders_with(comparisons.path, COMPARISON.settings)
        entries += comparisons.each(there, lambda path: _entry(comparisons, path, "comparison", _content_of_comparison))
    return sorted(entries, key=lambda entry: -entry.changed)


def _content_of_comparison(path: Path, files: Files, collection: RunCollection) -> Content:
    """Return methods, datasets and finished searches of a comparison."""
    plan = load_yaml_file(path / COMPARISON.settings)
    searches = plan["sweeps"]
    done = sum(f"{COMPARISON.inside}/{name}/{SWEEP.result}" in files.changed for name in searches)
    method, data = (
        ", ".join(dict.fromkeys(str(value) for value in values))
        for values in (plan["asked"]["methods"], [each["task"]["dataset"] for each in searches.values()])
    )
    return Content(method, data, done, len(searches), "", {}, done == len(searches))


def _entry(collection: RunCollection, path: Path, kind: KindName, read: _Read) -> Entry:
    files = collection.files(path.name)
    changed = max((files.changed[name] for name in _DATED if name in files.changed), default=time.time())
    state: State = "running" if collection.is_running(path.name, files) else "unfinished"
    content: Content | None = None
    try:
        content = read(path, files, collection)
        if state != "running" and content.is_finished:
            state = "finished"
    except _DAMAGE:
        state = "unreadable"
    return Entry(path.name, kind, collection.address_of(path.name), state, content, files.num_bytes, changed)
