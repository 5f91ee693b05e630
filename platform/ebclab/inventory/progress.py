"""How far a run came and how good it is, from as few of its files as tell it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ebclab.inventory.files import Files
from ebclab.inventory.folders import RunCollection
from ebclab.inventory.written import settings_at
from ebclab.runs.summary import RunSummary

_RESULT = "result.json"
_SETTINGS = ("method.name", "data.name", "training.epochs", "evaluation.objective")


class Content(NamedTuple):
    """What the files of a run or a sweep say.

    Attributes:
        method: Name of the method.
        data: Name of the dataset.
        done: Epochs that a run has trained, or search trials of a sweep that are over.
        of: How many it is to have.
        objective: Name of the score that it is judged by.
        scores: Held-out scores by name: of a run the newest; of a sweep the winner's mean, or the best trial's value
            while it has no winner. Empty when nothing was measured.
        is_finished: It has a result.
        note: What else is to be said of how far it came.
    """

    method: str
    data: str
    done: int
    of: int
    objective: str
    scores: Mapping[str, float]
    is_finished: bool
    note: str = ""


class _Progress(NamedTuple):
    """How far a run came: epochs done, and its newest held-out scores by name."""

    epochs_done: int
    scores: Mapping[str, float]


def content_of_run(path: Path, files: Files, collection: RunCollection) -> Content:
    """Return what the files of a run say.

    Args:
        path: The folder of the run, or this machine's copy of it.
        files: The files that it has.
        collection: The folder of runs.

    Raises:
        UserError: A file is damaged.
    """
    method, data, epochs, objective = settings_at(path / "config.yaml", _SETTINGS)  # unchecked: it may be older
    if is_finished := _RESULT in files.changed:
        summary = RunSummary.read(path / _RESULT, str(path / _RESULT))
        progress = _Progress(summary.epochs, summary.scores)
        ends = [extension.before for extension in summary.extensions]
    else:
        manifest = collection.newest_manifest(path.name, files)
        progress = _Progress(0, {})
        if manifest is not None:
            progress = _Progress(manifest["facts"]["epochs_done"], manifest["facts"]["scores"])
        ends = _extended(path / "config.yaml")
    note = f"(extended from {', '.join(map(str, ends))})" if ends else ""
    scores = {name: float(value) for name, value in progress.scores.items()}
    return Content(str(method), str(data), int(progress.epochs_done), int(epochs), objective, scores, is_finished, note)


def _extended(path: Path) -> list[int]:
    """Return the totals of epochs that a run was to have before; none in the settings of an older version."""
    try:
        (ends,) = settings_at(path, ("training.extended",))
    except KeyError:
        return []
    return list(ends)
