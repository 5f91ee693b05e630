"""Progress and scores of a run, from as few of its files as possible."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ebclab.inventory.files import Files
from ebclab.inventory.folders import RunCollection
from ebclab.inventory.written import settings_at
from ebclab.runs.summary import RunSummary
from ebclab.storage.kinds import RUN

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
    """Return settings, progress and scores of a run, read from its files.

    Args:
        path: The folder of the run, or its local copy.
    """
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


def _settings(path: Path, with_extensions: bool) -> list[Any]:
    """Return the settings of a run, not validated, and the planned epochs before each extension, if there are any."""
    if with_extensions:
        with suppress(KeyError):  # a run of an older version has no such setting
            *values, ends = settings_at(path, (*_SETTINGS, "training.extended"))
            return [*values, *ends]
    return settings_at(path, _SETTINGS)
