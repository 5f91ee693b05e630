"""Delete complete runs and sweeps by name, and nothing else."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebclab.config import ExperimentConfig
from ebclab.config.names import did_you_mean, require_folder_name
from ebclab.errors import RunError, UserError
from ebclab.inventory.folders import room
from ebclab.inventory.listing import run_paths, sweep_paths
from ebclab.runs.folder import RunFolder
from ebclab.runs.initial_weights import with_digest
from ebclab.runs.resume import contradictions
from ebclab.storage import atomic
from ebclab.storage.kinds import SWEEP
from ebclab.storage.lease import NAME as LEASE
from ebclab.storage.lease import leased, require_all_free
from ebclab.storage.lock import LOCK, is_running, locked
from ebclab.storage.object_store import Store
from ebclab.storage.remote import remote_at
from ebclab.sweeps.folder import SweepFolder

_FOLDERS: dict[str, type[RunFolder] | type[SweepFolder]] = {each.kind.name: each for each in (RunFolder, SweepFolder)}


@dataclass(frozen=True)
class Deletable:
    """A run or a sweep that may be deleted."""

    folder: RunFolder | SweepFolder
    finished: bool  # whether it has a result
    num_bytes: int  # total size of its files in bytes

    def in_words(self) -> str:
        """Return state, kind and address as text."""
        return f"{'finished' if self.finished else 'unfinished'} {self.folder.kind.name} {self.folder.address}"


def find_named(names: list[str], runs: str | None, sweeps: str | None) -> list[Deletable]:
    """Return the runs and sweeps with these names, without duplicates.

    ``runs`` and ``sweeps`` are folders or addresses. If only one is given, only that one is searched; if none is, the
    default folders are.
    """
    places = {"run": runs, "sweep": sweeps} if runs or sweeps else {"run": "runs", "sweep": "sweeps"}
    chosen = {kind: place for kind, place in places.items() if place}
    found = []
    for name in dict.fromkeys(names):
        require_folder_name(name, "NAME")
        having = [each for kind, place in chosen.items() if (each := deletable(place, name, kind)) is not None]
        if not having:
            raise RunError(f"{name}: {_not_found(name, chosen)}")
        if len(having) > 1:
            raise UserError(f"{name}: a run and a sweep have this name; name the folder of one by --runs or --sweeps")
        found += having
    for each in found:
        require_unused(each.folder)
    return found


def deletable(place: str, name: str, kind: str) -> Deletable | None:
    """Return the run or sweep ``name`` in a folder or at an address; None if there is none.

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
    known = {"run": run_paths, "sweep": sweep_paths}
    names = [path.name for kind, place in places.items() if not remote_at(place) for path in known[kind](Path(place))]
    where = " and ".join(f"no {kind} in {place}" for kind, place in places.items())
    return f"{where}; {did_you_mean(name, names)}"


def require_unused(folder: RunFolder | SweepFolder) -> None:
    """Refuse a run or sweep that a process uses, or a sweep with a trial that a process uses."""
    if folder.remote is not None:
        require_all_free(folder.remote, Store(folder.remote).names(), folder.kind.busy)
        return
    for path in [folder.path, *(lock.parent for lock in (folder.path / SWEEP.inside).glob(f"*/{LOCK}"))]:
        if is_running(path):
            raise RunError(f"{path}: another process {folder.kind.busy}; wait for it or stop it")


def delete(target: Deletable) -> None:
    """Delete a run or sweep; symbolic links in it are deleted, but not their targets.

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
        aside = folder.path.with_name(f".{folder.path.name}.deleted")
        try:
            if aside.exists():  # left by a killed deletion
                shutil.rmtree(aside)
            atomic.rename(folder.path, aside)
            shutil.rmtree(aside)
        except OSError as error:
            raise RunError(
                f"{folder.path}: cannot be deleted, got {error.strerror or error}; delete it by hand"
            ) from error


Obstacle = Literal["other settings", "finished"]


def obstacle(run: RunFolder, config: ExperimentConfig) -> Obstacle | None:
    """Return why a launch with ``config`` would not continue the run on this disk; None if it would."""
    if run.result_path.exists():
        return "finished"
    try:
        before = run.read_config()
        now, _ = with_digest(config, before.init)
    except UserError:
        return "other settings"  # a run whose settings cannot be read cannot be resumed
    return "other settings" if contradictions(before, now) else None
