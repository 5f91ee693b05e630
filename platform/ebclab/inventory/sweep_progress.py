"""Progress of a sweep and score of its best settings."""

from __future__ import annotations

from pathlib import Path

from ebclab.config import load_yaml_file
from ebclab.inventory.progress import Content
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.proposals import ranked
from ebclab.sweeps.results import SweepResult


def content_of_sweep(path: Path) -> Content:
    """Return settings, progress and score of a sweep, read from its files.

    Args:
        path: The folder of the sweep, or its local copy.
    """
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
