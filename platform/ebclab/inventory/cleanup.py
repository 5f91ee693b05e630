"""Find and delete files of runs and sweeps that nothing needs: spent checkpoints, and what Ray left behind."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebclab.errors import RunError, UserError
from ebclab.inventory.listing import room_freed, run_paths, sweep_paths
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.storage.lock import is_running, kept_free
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import read_plan
from ebclab.sweeps.proposals import ranked

_GOES = ("last-*", "best-*", ".last-*", ".best-*", ".kept-*")  # not kept-*: the user asked for those
_log = logging.getLogger("ebclab.sweeps")


@dataclass(frozen=True)
class Waste:
    """A folder that can be deleted.

    Attributes:
        path: The folder.
        owner: The run or sweep that it belongs to and whose lock protects it.
        why: What the folder holds, for people.
    """

    path: Path
    owner: Path
    why: str


def find_waste(runs: Path, sweeps: Path) -> list[Waste]:
    """Return what can be deleted from the runs in one folder and the sweeps in another.

    Nothing is returned of a run or sweep that a process works in, and no checkpoint of: runs outside sweeps, confirming
    runs, the best search trials, and trials that a resumed sweep would continue.
    """
    owners = [*run_paths(runs), *sweep_paths(sweeps)]
    return [waste for owner in owners if not is_running(owner) for waste in _waste_of(owner)]


def remove(wasted: Sequence[Waste]) -> tuple[int, list[Path]]:
    """Delete what ``find_waste`` returned, unless it is needed by now.

    Returns:
        Bytes that were freed, and the runs and sweeps that were left alone because a process works in them by now.

    Raises:
        RunError: A folder cannot be deleted.
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
    """Return what can be deleted from a run or sweep in which no process works."""
    wasted = [Waste(owner / ".ray", owner, "what Ray left behind")] if _is_folder(owner / ".ray") else []
    if not SweepFolder(owner).plan.is_file():
        return wasted
    try:
        names = _spent_runs(SweepFolder(owner))
    except UserError as error:
        _log.warning("%s; its trials are left alone", error)
        return wasted
    for name in names:
        run = RunFolder(owner / "trials" / name)
        if _is_folder(run.path) and _is_folder(run.checkpoints) and not is_running(run.path):
            paths = sorted(path for pattern in _GOES for path in run.checkpoints.glob(pattern) if _is_folder(path))
            wasted += [Waste(path, owner, "checkpoints of search trials that are over") for path in paths]
    return wasted


def _spent_runs(folder: SweepFolder) -> list[str]:
    """Return the names of the run folders of search trials whose weights nothing needs any more."""
    plan = read_plan(folder.plan)
    if plan.rules.scheduler == "pbt" and not folder.result.is_file():
        return []  # its trials may still copy each other's weights
    trials = folder.read_log().of_kind("search")
    best = {trial.id for trial in ranked(trials)[: max(plan.top, 1)]}
    names = []
    for trial in trials:
        if trial.is_over:
            before = [trial.id, *(f"{trial.id}-g{number}" for number in range(1, trial.generation + 1))]
            names += [name for name in before if trial.id not in best or name != trial.run_name]
    return names


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
