"""Kills a piece of work before each of its file operations, and forgets what a power cut would take.

    for folder in killed_everywhere(tmp_path, prepare, work, POWER_CUT):
        ...  # what must hold of ``folder``, which ``prepare`` filled and ``work`` changed until it was killed

The work runs in this process. The kill is an error that nothing catches; every later operation of the dead work raises
it again, so that no ``finally`` tidies up. A write that is killed leaves half of its bytes.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

Loss = Literal["kill", "power cut", "power cut after removals"]
"""What is lost: what was not done; also what was not synced; also that, but removals had reached the disk."""

LOSSES: tuple[Loss, ...] = ("kill", "power cut", "power cut after removals")

_CHANGES = {"rename": 2, "replace": 2, "unlink": 1, "remove": 1, "rmdir": 1, "mkdir": 1, "symlink": 2, "link": 2}
"""Operations of ``os`` that change names, and how many paths they take."""

_REAL = {name: getattr(os, name) for name in (*_CHANGES, "fsync")}
_OPEN = io.open


class Killed(BaseException):
    """The process is dead."""


def killed_everywhere(
    tmp_path: Path, prepare: Callable[[Path], object], work: Callable[[Path], object], loss: Loss = "kill"
) -> Iterator[Path]:
    """Yield a folder for every file operation of ``work``, which was killed before it; last, one with the whole work.

    Args:
        tmp_path: Where the folders are made; each is deleted when the next one is asked for.
        prepare: Fills a new folder. All that it writes is on the disk.
        work: Works in a prepared folder; operations on files elsewhere, and in ``tensorboard``, do not count.
        loss: What is lost with the kill.
    """
    for count in range(1, 10_000):
        folder = tmp_path / f"{loss.replace(' ', '-')}-{count}"
        folder.mkdir(parents=True)
        prepare(folder)
        with _Disk(folder) as disk:
            finished = disk.kill(work, before=count)
            if loss != "kill":
                disk.lose(removals_last=loss == "power cut after removals")
        yield folder
        shutil.rmtree(folder)
        if finished:
            return
    raise AssertionError("the work does not end")


def copies_of(filled: Path) -> Callable[[Path], object]:
    """Return a ``prepare`` of ``killed_everywhere`` that copies the content of a folder, which is made once."""
    return lambda folder: shutil.copytree(filled, folder, dirs_exist_ok=True)


@dataclass
class _Node:
    """What the disk holds of a file or a folder: what was there at its last sync."""

    content: bytes = b""
    names: dict[str, int] = field(default_factory=dict)  # numbers on the disk; of a folder
    is_folder: bool = False
    link: str | None = None


class _Disk:
    """Counts the operations below a folder, and knows what was synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = -1
        self._dead = False
        self._nodes: dict[int, _Node] = {}
        self._held: dict[int, int] = {}  # number on the disk: descriptor, so that no other file gets the number
        self._removed: set[tuple[int, str]] = set()  # folder and name, not synced since

    def __enter__(self) -> _Disk:
        for path in (self._folder, *self._folder.rglob("*")):
            self._synced(path)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def kill(self, work: Callable[[Path], object], *, before: int) -> bool:
        """Run ``work`` until its operation number ``before``; return whether it ended earlier."""
        self._left = before
        with self._watching():
            try:
                work(self._folder)
            except Killed:
                return False
        assert not self._dead, "the work swallowed its own death"
        return True

    def lose(self, *, removals_last: bool) -> None:
        """Put the folder into the state that the disk has: what was not synced is gone, or as before.

        Args:
            removals_last: What was removed stays removed, though that was not synced.
        """
        gone = self._removed if removals_last else set[tuple[int, str]]()
        for path in self._folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self._restore(self._folder.stat().st_ino, self._folder, gone)

    def _restore(self, number: int, folder: Path, gone: set[tuple[int, str]]) -> None:
        for name, inside in self._nodes[number].names.items():
            node, path = self._nodes.get(inside, _Node()), folder / name  # a file that was never synced is empty
            if (number, name) in gone:
                continue
            if node.is_folder:
                path.mkdir()
                self._restore(inside, path, gone)
            elif node.link is not None:
                path.symlink_to(node.link)
            else:
                path.write_bytes(node.content)

    def _synced(self, path: Path) -> None:
        """Note that what ``path`` holds now is on the disk."""
        info = path.lstat()
        node = _Node(is_folder=stat.S_ISDIR(info.st_mode))
        if stat.S_ISLNK(info.st_mode):
            node.link = os.readlink(path)
        elif node.is_folder:
            for name in os.listdir(path):
                node.names[name] = self._hold(path / name)
            self._removed = {removed for removed in self._removed if removed[0] != info.st_ino}
        else:
            with _OPEN(path, "rb") as file:
                node.content = file.read()
        self._nodes[info.st_ino] = node
        self._hold(path)

    def _hold(self, path: Path) -> int:
        """Keep the number of a file on the disk from being used again; a folder in a synced folder exists, if empty."""
        info = path.lstat()
        if info.st_ino not in self._held:
            self._held[info.st_ino] = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        if stat.S_ISDIR(info.st_mode):
            self._nodes.setdefault(info.st_ino, _Node(is_folder=True))
        return info.st_ino

    def _count(self) -> None:
        """Count one operation; the process dies before the last one."""
        if not self._dead:
            self._left -= 1
            self._dead = self._left == 0
        if self._dead:
            raise Killed

    def _is_watched(self, path: Any, dir_fd: int | None = None) -> Path | None:
        """Return the absolute path when the operation counts, else None."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        base = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd is not None else Path.cwd()
        whole = base / os.fsdecode(path)
        inside = whole.is_relative_to(self._folder) and "tensorboard" not in whole.parts
        return whole if inside else None

    @contextmanager
    def _watching(self) -> Iterator[None]:
        changes = {name: self._change(name) for name in _CHANGES}
        with (
            mock.patch.object(io, "open", self._open),
            mock.patch.object(builtins, "open", self._open),
            mock.patch.multiple(os, fsync=self._fsync, **changes),
        ):
            yield

    def _open(self, file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        writes = any(letter in mode for letter in "wax+")
        if not writes or self._is_watched(file) is None:
            return _OPEN(file, mode, *more, **options)
        self._count()
        return _File(_OPEN(file, mode, *more, **options), self._count)

    def _fsync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = self._is_watched(number)
        if path is not None:
            self._count()
            self._synced(path)

    def _change(self, name: str) -> Callable[..., Any]:
        def changed(*given: Any, **options: Any) -> Any:
            keys = ("src_dir_fd", "dst_dir_fd") if _CHANGES[name] == 2 else ("dir_fd", "dir_fd")
            paths = [self._is_watched(given[i], options.get(keys[i])) for i in range(_CHANGES[name])]
            paths = paths[1:] if name == "symlink" else paths
            if not any(paths):
                return _REAL[name](*given, **options)
            self._count()
            result = _REAL[name](*given, **options)
            if name in ("unlink", "remove", "rmdir") and paths[0] is not None:
                self._removed.add((paths[0].parent.stat().st_ino, paths[0].name))
            return result

        return changed


class _File:
    """A file that is written without a buffer, so that a kill loses what was not written, and nothing else."""

    def __init__(self, file: Any, count: Callable[[], None]) -> None:
        self._file, self._count = file, count

    def write(self, content: Any) -> int:
        try:
            self._count()
        except Killed:
            if not self._file.closed:
                self._file.write(content[: len(content) // 2])
                self._file.close()  # what the dead work writes after this, nobody sees
            raise
        written: int = self._file.write(content)
        self._file.flush()
        return written

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
