"""Collections of runs or sweeps, on a disk or in an object store, for listing; sizes and times of their files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from ebclab.errors import RunError, UserError
from ebclab.storage.kinds import COMPARISON, RUN, SWEEP
from ebclab.storage.lease import NAME as LEASE
from ebclab.storage.lease import held_by
from ebclab.storage.lock import LOCK, is_running
from ebclab.storage.mirror import CHECKPOINTS, MANIFEST, at_once, bring, whole_checkpoints
from ebclab.storage.object_store import RemoteFolder, Store, Stored, remote_at
from ebclab.storage.reading import json_value, read_typed, typed

T = TypeVar("T")
R = TypeVar("R")
_LISTED = {RUN.settings, RUN.result, *SWEEP.files, COMPARISON.settings}
"""Files of runs, sweeps and comparisons that listing reads."""


class Files(NamedTuple):
    """The files of a run or a sweep."""

    num_bytes: int  # total size in bytes; hard links to the same file count once
    changed: Mapping[str, float]  # modification time of each file, in seconds since 1970, by path within the folder


@dataclass(frozen=True)
class RunProgress:
    """How far a run came, by the facts in the manifest of a checkpoint."""

    epochs_done: int  # epochs done
    scores: dict[str, float]  # held-out scores by name


@dataclass(frozen=True)
class _Manifested:
    """What a list reads of a manifest."""

    facts: RunProgress


def files_in(folder: Path | str) -> Files:
    """Return the files of a folder on a disk; symbolic links are not followed."""
    num_bytes, linked, changed = 0, dict[tuple[int, int], int](), dict[str, float]()
    start = len(os.fspath(folder)) + 1
    for path, stat in _files([folder]):
        if stat.st_nlink == 1:
            num_bytes += stat.st_size
        else:
            linked[stat.st_dev, stat.st_ino] = stat.st_size
        changed[path[start:]] = stat.st_mtime
    return Files(num_bytes + sum(linked.values()), changed)


def room(paths: Iterable[Path]) -> int:
    """Return the total size of all files in ``paths`` in bytes; hard links to the same file count once."""
    sizes = {(stat.st_dev, stat.st_ino): stat.st_size for _, stat in _files(paths)}
    return sum(sizes.values())


def room_freed(paths: Iterable[Path]) -> int:
    """Return the bytes that deleting ``paths`` frees; a file with a hard link elsewhere does not count."""
    stats = [stat for _, stat in _files(paths)]
    names = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    sizes = {(s.st_dev, s.st_ino): s.st_size for s in stats if names[s.st_dev, s.st_ino] >= s.st_nlink}
    return sum(sizes.values())


def folders_with(folder: Path, file: str) -> list[Path]:
    """Return the folders in ``folder`` that contain ``file``; hidden ones, which are being deleted, are skipped."""
    try:
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if os.path.lexists(os.path.join(folder, name, file))]


def _files(paths: Iterable[Path | str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and stat result of every file and link in ``paths``; files deleted meanwhile are skipped."""
    folders = [os.fspath(path) for path in paths]
    while folders:
        try:  # not suppress: it takes as long as all the rest
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        elif entry.is_file() or entry.is_symlink():
                            yield entry.path, entry.stat(follow_symlinks=False)
                    except OSError:
                        pass
        except OSError:
            pass


@dataclass(frozen=True)
class RunCollection:
    """A folder of runs or of sweeps."""

    path: Path  # the folder, or its local copy
    remote: RemoteFolder | None = None  # the folder in the store; None on a disk
    there: Mapping[str, Files] | None = None  # files in the store, by name of the run or sweep; None on a disk

    @property
    def address(self) -> str:
        return self.remote.address if self.remote else str(self.path)

    def address_of(self, name: str) -> str:
        """Return path or address of a run or sweep."""
        return (self.remote / name).address if self.remote else os.path.join(self.path, name)

    def files(self, name: str) -> Files:
        """Return the files of a run or sweep."""
        return files_in(os.path.join(self.path, name)) if self.there is None else self.there.get(name, Files(0, {}))

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return what ``work`` returns for each item; in a store, in parallel threads."""
        return [work(item) for item in items] if self.remote is None else at_once(work, items)

    def progress(self, path: Path, files: Files) -> RunProgress | None:
        """Return how far a run with these files came, by its newest complete ``last`` checkpoint; None if none."""
        for folder in whole_checkpoints(files.changed, "last"):
            if self.remote is None:
                return read_typed(path / CHECKPOINTS / folder / MANIFEST, _Manifested).facts
            try:
                manifest = Store(self.remote / path.name / CHECKPOINTS / folder).read(MANIFEST)
                return typed(json_value(manifest), _Manifested).facts
            except FileNotFoundError:
                continue  # replaced since listing
            except ValueError as error:
                raise RunError(f"{self.address}/{path.name}: {folder} is damaged, got {error}") from error
        return None

    def is_running(self, path: Path, files: Files) -> bool:
        """Return whether a process uses a run or sweep that has these files."""
        if self.remote is not None:
            return LEASE in files.changed and bool(held_by(self.remote / path.name, files.changed[LEASE]))
        return LOCK in files.changed and is_running(path)


def _by_folder(there: Mapping[str, Stored]) -> dict[str, Files]:
    """Return the files of each direct subfolder of a folder in a store, by name of the subfolder."""
    sizes, changed = Counter[str](), dict[str, dict[str, float]]()
    for file, info in there.items():
        folder, _, name = file.partition("/")
        sizes[folder] += info.num_bytes
        changed.setdefault(folder, {})[name] = info.changed.timestamp() if info.changed else 0.0
    return {folder: Files(sizes[folder], times) for folder, times in changed.items()}


def collection_at(place: str | None, usual: str) -> RunCollection:
    """Return the collection at the user's place, or the usual one; what listing reads is copied from a store."""
    remote = remote_at(place) if place else None
    if remote is None:
        return RunCollection(collection_given(place, usual))
    remote = remote.of("reader")
    store = Store(remote)
    there = store.names()
    wanted = [name for name in there if name.count("/") == 1 and name.endswith(tuple(f"/{file}" for file in _LISTED))]
    for path in (path for file in _LISTED for path in remote.cache.glob(f"*/{file}")):  # of an earlier listing
        path.unlink()
    at_once(lambda name: bring(store, name, remote.cache / name), wanted)
    return RunCollection(remote.cache, remote, _by_folder(there))


def collection_given(place: str | None, usual: str) -> Path:
    """Return the folder on a disk that the user gave by the option ``--usual``, or the usual one, such as runs."""
    if place is None:
        return Path(usual)
    if remote_at(place) is not None:
        raise UserError(
            f"--{usual}: only folders on a disk can be cleaned, got {place}; "
            "delete in a store with its own tool, such as `aws s3 rm --recursive`"
        )
    if not Path(place).is_dir():
        raise RunError(f"--{usual}: there is no such folder, got {place}")
    return Path(place)
