"""What of runs and sweeps can go without loss: weights that nobody will go on from, and what Ray left behind."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebclab.errors import RunError, UserError
from ebclab.inventory.listing import room_freed, run_paths, sweep_paths
from ebclab.runs.folder import RunFolder
from ebclab.storage.lock import is_running, kept_free
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import read_plan
from ebclab.sweeps.proposals import ranked

_GOES = ("last-*", "best-*")  # kept-* stay: somebody asked for them
_log = logging.getLogger("ebclab.sweeps")


@dataclass(frozen=True)
class Waste:
    """A folder that can go.

    Attributes:
        path: The folder.
        owner: The run or sweep that it belongs to, whose lock protects it.
        why: What it is, in words.
    """

    path: Path
    owner: Path
    why: str


def find_waste(runs: Path, sweeps: Path) -> list[Waste]:
    """Return what can go of the runs in one folder and the sweeps in another.

    What a process works in is left alone. Confirming runs, runs of their own, and the search trials that rank best
    are never among it, nor is any trial that a resumed sweep would still go on with.
    """
    owners = [*run_paths(runs), *sweep_paths(sweeps)]
    return [waste for owner in owners if not is_running(owner) for waste in _waste_of(owner)]


def remove(found: Sequence[Waste]) -> tuple[int, list[Path]]:
    """Remove what ``find_waste`` found, as far as it still can go.

    Returns:
        Bytes that were freed, and the runs and sweeps in which a process has begun to work since.

    Raises:
        RunError: Something cannot be removed.
    """
    freed, busy = 0, []
    for owner in dict.fromkeys(waste.owner for waste in found):
        with kept_free(owner) as is_free:
            if not is_free:
                busy.append(owner)
                continue
            asked = {waste.path for waste in found}
            paths = [waste.path for waste in _waste_of(owner) if waste.path in asked]
            freed += room_freed(paths)
            for path in paths:
                try:
                    shutil.rmtree(path)
                except OSError as error:
                    raise RunError(f"{path}: cannot be removed, got {error.strerror or error}") from error
    return freed, busy


def _waste_of(owner: Path) -> list[Waste]:
    """Return what can go of a run or sweep in which no process works."""
    found = [Waste(owner / ".ray", owner, "what Ray left behind")] if _is_folder(owner / ".ray") else []
    if not SweepFolder(owner).plan.is_file():
        return found
    try:
        names = _spent_runs(SweepFolder(owner))
    except UserError as error:
        _log.warning("%s; its trials are left alone", error)
        return found
    for name in names:
        run = RunFolder(owner / "trials" / name)
        if _is_folder(run.path) and _is_folder(run.checkpoints) and not is_running(run.path):
            paths = sorted(path for pattern in _GOES for path in run.checkpoints.glob(pattern) if _is_folder(path))
            found += [Waste(path, owner, "checkpoints of search trials that are over") for path in paths]
    return found


def _spent_runs(folder: SweepFolder) -> list[str]:
    """Return the run folders of a search's trials whose weights nothing will need again."""
    plan = read_plan(folder.plan)
    if plan.rules.scheduler == "pbt" and not folder.result.is_file():
        return []  # its members may still go on from each other's weights
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
