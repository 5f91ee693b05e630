"""Total size and modification times of the files of a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Files(NamedTuple):
    """The files of a run or a sweep."""

    num_bytes: int  # total size in bytes; hard links to the same file count once
    changed: Mapping[str, float]  # modification time of each file, in seconds since 1970, by path within the folder


def files_in(folder: Path | str) -> Files:
    """Return the files of a folder on a disk; symbolic links are not followed."""
    sizes, changed, start = dict[tuple[int, int], int](), dict[str, float](), len(os.fspath(folder)) + 1
    for path, stat in _files([folder]):
        sizes[stat.st_dev, stat.st_ino] = stat.st_size
        changed[path[start:]] = stat.st_mtime
    return Files(sum(sizes.values()), changed)


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
