"""Find and delete files of runs and sweeps that are no longer needed: obsolete checkpoints and leftovers of Ray."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebclab.errors import RunError, UserError
from ebclab.inventory.folders import room_freed
from ebclab.inventory.listing import run_paths, sweep_paths
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.storage.kinds import SWEEP
from ebclab.storage.lock import is_running, kept_free
from ebclab.storage.mirror import CHECKPOINTS
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import read_plan
from ebclab.sweeps.proposals import ranked
from ebclab.sweeps.trial import Trial

_SPENT = ("last-*", "best-*")  # not kept-*: requested by the user
_LEFT = (".last-*", ".best-*", ".kept-*")
_GENERATION = re.compile("[1-9][0-9]{0,8}")
_log = logging.getLogger("ebclab.sweeps")


@dataclass(frozen=True)
class Waste:
    """A folder that can be deleted."""

    path: Path  # the folder
    owner: Path  # the run or sweep that it belongs to and whose lock protects it
    why: str  # what the folder contains, as text for the user


def find_waste(runs: Path, sweeps: Path) -> list[Waste]:
    """Return the folders that can be deleted from the runs in one folder and the sweeps in another.

    Runs and sweeps in use by a process are skipped. Complete checkpoints are never returned for: runs outside sweeps,
    confirmation runs, the best search trials, and trials that a resumed sweep would continue. Symbolic links are not
    followed; their targets are never deleted.
    """
    owners = [*run_paths(runs), *sweep_paths(sweeps)]
    return [waste for owner in owners if not is_running(owner) for waste in _waste_of(owner)]


def remove(wasted: Sequence[Waste]) -> tuple[int, list[Path]]:
    """Delete the folders that ``find_waste`` returned, except those that are needed in the meantime.

    The freed bytes are returned, and the runs and sweeps that were skipped because a process uses them by now.
    """
    freed, busy = 0, []
    for owner in dict.fromkeys(waste.owner for waste in wasted):
        with kept_free(owner) as is_free:
            if not is_free:
                busy.append(owner)
                continue
            asked = {waste.path for waste in wasted}
            paths = [waste.path for waste in _waste_of(owner) if waste.path in asked]
            freed += room_freed(paths)
            for path in paths:
                try:
                    shutil.rmtree(path if path.name.startswith(".") else atomic.set_aside(path))
                except OSError as error:
                    raise RunError(f"{path}: cannot be removed, got {error.strerror or error}") from error
    return freed, busy


def _waste_of(owner: Path) -> list[Waste]:
    """Return the folders that can be deleted from a run or sweep that no process uses."""
    wasted = [Waste(owner / ".ray", owner, "what Ray left behind")] if _is_own_folder(owner / ".ray", owner) else []
    wasted += _left_of_checkpoints(owner)
    if not SweepFolder(owner).plan.is_file():
        return wasted
    try:
        spent = _spent_runs(SweepFolder(owner))
    except UserError as error:
        _log.warning("%s; its trials are left alone", error)
        return wasted
    for run in spent:
        if _is_own_folder(run.path / CHECKPOINTS, owner) and not is_running(run.path):
            folders = sorted(path for pattern in _SPENT for path in run.checkpoints.glob(pattern))
            wasted += [
                Waste(path, owner, "checkpoints of search trials that are over")
                for path in folders
                if _is_own_folder(path, owner)
            ]
    return wasted


def _left_of_checkpoints(owner: Path) -> list[Waste]:
    """Return hidden folders left by killed saves and removals in a run, or in the trials of a sweep."""
    runs = [RunFolder(owner), *map(RunFolder, sorted((owner / SWEEP.inside).glob("*")))]
    return [
        Waste(path, owner, "what killed saves left of checkpoints")
        for run in runs
        if _is_own_folder(run.path / CHECKPOINTS, owner) and not (run.path != owner and is_running(run.path))
        for path in sorted(path for pattern in _LEFT for path in run.checkpoints.glob(pattern))
        if _is_own_folder(path, owner)
    ]


def _spent_runs(folder: SweepFolder) -> list[RunFolder]:
    """Return the runs of search trials whose weights are no longer needed.

    They are selected from existing folders: no path is constructed from a name in the log.
    """
    plan = read_plan(folder.plan)
    if plan.rules.scheduler == "pbt" and not folder.result.is_file():
        return []  # its trials may still copy each other's weights
    trials = folder.read_log().of_kind("search")
    needed = {trial.run_name for trial in ranked(trials)[: max(plan.top, 1)]}
    needed |= {trial.run_name for trial in trials if not trial.is_over}
    over = {trial.id: trial for trial in trials if trial.is_over}
    spent = []
    for path in sorted(folder.trials.glob("*")):
        trial, generation = _trial_of(path.name, over)
        if trial is not None and generation <= trial.generation and path.name not in needed:
            spent.append(RunFolder(path))
    return spent


def _trial_of(name: str, trials: Mapping[str, Trial]) -> tuple[Trial | None, int]:
    """Return the trial that a run folder belongs to, None if there is none, and the generation of the folder."""
    if name in trials:
        return trials[name], 0
    trial_id, _, generation = name.rpartition("-g")
    if _GENERATION.fullmatch(generation):
        return trials.get(trial_id), int(generation)
    return None, 0


def _is_own_folder(path: Path, owner: Path) -> bool:
    """Return whether ``path`` is a folder without symbolic links in its path from ``owner`` on."""
    around = owner.parent
    return path.is_dir() and path.resolve() == around.resolve() / path.relative_to(around)
