"""Deletes whole folders of ours by name, and what is no longer needed of runs and sweeps, such as Ray's leftovers."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebclab.config import ExperimentConfig
from ebclab.config.names import did_you_mean, require_folder_name
from ebclab.errors import RunError, UserError
from ebclab.inventory.listing import folders_with, room, room_freed
from ebclab.runs.folder import RunFolder
from ebclab.runs.initial_weights import with_digest
from ebclab.runs.resume import contradictions
from ebclab.storage import atomic
from ebclab.storage.kinds import COMPARISON, REPRODUCTION, RUN, SWEEP
from ebclab.storage.lease import NAME as LEASE
from ebclab.storage.lease import leased, require_all_free
from ebclab.storage.lock import LOCK, is_running, kept_free, locked
from ebclab.storage.mirror import CHECKPOINTS
from ebclab.storage.object_store import Store, remote_at
from ebclab.storage.workspace import Workspace
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import Trial
from ebclab.sweeps.results import ranked


class _Comparison(Workspace):
    kind = COMPARISON


class _Reproduction(Workspace):
    kind = REPRODUCTION


_FOLDERS: dict[str, type[Workspace]] = {
    each.kind.name: each for each in (RunFolder, SweepFolder, _Comparison, _Reproduction)
}
_SPENT = ("last-*", "best-*")  # not kept-*: requested by the user
_LEFT = (".last-*", ".best-*", ".kept-*")
_DELETED = ".*.deleted"  # a folder while it is deleted
_GENERATION = re.compile("[1-9][0-9]{0,8}")
_log = logging.getLogger("ebclab.sweeps")


@dataclass(frozen=True)
class Deletable:
    """A run, sweep, comparison or reproduction that may be deleted."""

    folder: Workspace
    finished: bool  # whether it has a result
    num_bytes: int  # total size of its files in bytes

    def in_words(self) -> str:
        """Return state, kind and address as text."""
        return f"{'finished' if self.finished else 'unfinished'} {self.folder.kind.name} {self.folder.address}"


def find_named(
    names: list[str], runs: str | None, sweeps: str | None, comparisons: str | None = None
) -> list[Deletable]:
    """Return the runs, sweeps, comparisons and reproductions with these names, without duplicates.

    ``runs``, ``sweeps`` and ``comparisons`` are folders or addresses. If some are given, only these are searched; if
    none is, the default folders are.
    """
    places = {"run": runs, "sweep": sweeps, "comparison": comparisons}
    chosen = {kind: place for kind, place in places.items() if place} or {kind: f"{kind}s" for kind in _FOLDERS}
    found = []
    for name in dict.fromkeys(names):
        require_folder_name(name, "NAME")
        having = [each for kind, place in chosen.items() if (each := deletable(place, name, kind)) is not None]
        if not having:
            raise RunError(f"{name}: {_not_found(name, chosen)}")
        if len(having) > 1:
            kinds = " and ".join(f"a {each.folder.kind.name}" for each in having)
            raise UserError(f"{name}: {kinds} have this name; name the folder of one by --runs, --sweeps or another")
        found += having
    for each in found:
        require_unused(each.folder)
    return found


def deletable(place: str, name: str, kind: str) -> Deletable | None:
    """Return what of this kind is called ``name`` in a folder or at an address; None if there is none.

    A folder without the settings of its kind is not ours and is never deleted.
    """
    folder = _FOLDERS[kind].named(place, name)
    if folder.remote is not None:
        files = Store(folder.remote).names()
        if folder.kind.settings not in files:
            return None
        return Deletable(folder, folder.kind.result in files, sum(file.num_bytes for file in files.values()))
    if folder.path.is_symlink():
        raise UserError(
            f"{folder.path}: a symbolic link, and nothing behind one is deleted; name the folder it leads to"
        )
    if not (folder.path / folder.kind.settings).is_file():
        return None
    return Deletable(folder, (folder.path / folder.kind.result).exists(), room([folder.path]))


def _not_found(name: str, places: dict[str, str]) -> str:
    here = [(Path(place), _FOLDERS[kind].kind.settings) for kind, place in places.items() if not remote_at(place)]
    names = [path.name for place, file in here for path in folders_with(place, file)]
    where = " and ".join(f"no {kind} in {place}" for kind, place in places.items())
    return f"{where}; {did_you_mean(name, names)}"


def require_unused(folder: Workspace) -> None:
    """Refuse a folder that a process uses, or with a run or a sweep in it that a process uses."""
    if folder.remote is not None:
        require_all_free(folder.remote, Store(folder.remote).names(), folder.kind.busy)
        return
    for path in [folder.path, *(lock.parent for lock in folder.path.glob(f"*/**/{LOCK}"))]:
        if is_running(path):
            raise RunError(f"{path}: another process {folder.kind.busy}; wait for it or stop it")


def delete(target: Deletable) -> None:
    """Delete a folder of ours; symbolic links in it are deleted, but not their targets.

    On a disk the folder is first renamed atomically, so that after a kill all of it or nothing has the original name.
    In a store, the result is deleted first, then manifests of checkpoints, and the settings last, so that an
    interrupted deletion can be repeated.
    """
    folder = target.folder
    require_unused(folder)
    with ExitStack() as stack:
        if folder.remote is not None:
            lease = stack.enter_context(leased(folder.remote, folder.kind.busy))
            store = Store(folder.remote, may_change=lease.fence.check_again)
            for name in sorted(set(store.names()) - {LEASE}, key=folder.deletion_rank):
                store.delete(name)
            lease.remove()
            shutil.rmtree(folder.path, ignore_errors=True)  # the local copy
            return
        stack.enter_context(locked(folder.path, busy=folder.kind.busy, option=folder.kind.option))
        aside = folder.path.with_name(_DELETED.replace("*", folder.path.name))
        try:
            if aside.exists():  # left by a killed deletion
                shutil.rmtree(aside)
            atomic.rename(folder.path, aside)
            stack.close()  # NFS keeps an open lock file, under another name, and with it the folder
            shutil.rmtree(aside)
        except OSError as error:
            raise RunError(
                f"{folder.path}: cannot be deleted, got {error.strerror or error}; delete it by hand"
            ) from error


Obstacle = Literal["other settings", "finished"]


def obstacle(run: RunFolder, config: ExperimentConfig) -> Obstacle | None:
    """Return why a launch with ``config`` would not continue the run on this disk; None if it would."""
    if run.result.exists():
        return "finished"
    try:
        before = run.read_config()
        now, _ = with_digest(config, before.init)
    except UserError:
        return "other settings"  # a run whose settings cannot be read cannot be resumed
    return "other settings" if contradictions(before, now) else None


@dataclass(frozen=True)
class Waste:
    """A folder that can be deleted."""

    path: Path  # the folder
    owner: Path  # the run or sweep that it belongs to and whose lock protects it, or the folder of runs or sweeps
    why: str  # what the folder contains, as text for the user


def find_waste(
    runs: Path, sweeps: Path, comparisons: Path | None = None, reproductions: Path | None = None
) -> list[Waste]:
    """Return the folders that can be deleted from runs and sweeps, also those of comparisons and reproductions.

    Runs and sweeps in use by a process are skipped. Complete checkpoints are never returned for: runs outside sweeps,
    confirmation runs, the best search trials, and trials that a resumed sweep would continue. Symbolic links are not
    followed; their targets are never deleted.
    """
    owners = [each for each in (runs, sweeps, comparisons, reproductions) if each]
    owners += [*folders_with(runs, RUN.settings), *folders_with(sweeps, SWEEP.settings)]
    for place, kind, member in ((comparisons, COMPARISON, SWEEP), (reproductions, REPRODUCTION, RUN)):
        for folder in folders_with(place, kind.settings) if place else ():
            owners += folders_with(folder / kind.inside, member.settings)
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
    deleted = [path for path in sorted(owner.glob(_DELETED)) if _is_own_folder(path, owner)]
    wasted += [Waste(path, owner, "what killed deletions left") for path in deleted]
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
    plan = folder.read_plan()
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
