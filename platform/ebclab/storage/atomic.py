"""Files and folders that are complete or absent: written under a temporary name, synced and renamed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_EIGHT_HEX = "[0-9a-f]" * 8


def write_text(path: Path, text: str) -> None:
    """Atomically replace the file at ``path`` with ``text`` (UTF-8)."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Atomically replace the file at ``path`` with ``content``."""
    write_parts(path, [content])


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Atomically replace the file at ``path`` with the concatenated ``parts``, which may be read from that file."""
    with written_aside(path) as file:
        for part in parts:
            file.write(part)


@contextmanager
def written_aside(path: Path) -> Iterator[BinaryIO]:
    """Yield a hidden file that atomically replaces the one at ``path`` when the block has ended."""
    aside = hidden_beside(path)
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_path(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Atomically replace the file at ``path`` with ``value`` as indented JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``target``; on success, sync its files and rename it to ``target``.

    On an error, the partially filled folder is removed and ``target`` is not created.
    """
    make_folder(target.parent)
    aside = hidden_beside(target)
    aside.mkdir()
    try:
        yield aside
        for path in aside.rglob("*"):
            sync_path(path)
        sync_path(aside)
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sync_path(target.parent)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents and sync them, so that they survive a power failure."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_path(each.parent)


def refusal(folder: Path) -> str:
    """Create a folder; return why it cannot be written to, empty if it can."""
    try:
        make_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def set_aside(path: Path) -> Path:
    """Rename a file or folder to a hidden name next to it, which readers ignore; return the new path."""
    aside = hidden_beside(path)
    rename(path, aside)
    return aside


def rename(path: Path, target: Path) -> None:
    """Rename a file or folder within its folder, such that the new name survives a power failure."""
    path.rename(target)
    sync_path(target.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder such that no reader ever sees it partially deleted; OS errors are ignored."""
    with suppress(OSError):
        _remove(set_aside(path))
        sync_path(path.parent)


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove what killed writes and removals of the glob ``name`` left in a folder of this process alone."""
    for path in folder.glob(f".{name}.{_EIGHT_HEX}"):
        with suppress(OSError):
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a folder, a file, or a symbolic link but not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Flush the content of a file, or the entries of a folder, to disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP) or not path.is_dir():
            raise  # some file systems of networks, virtual machines and FUSE do not sync folders
    finally:
        os.close(descriptor)


def hidden_beside(path: Path) -> Path:
    """Return a unique hidden name next to ``path``, for a file or folder that is not complete yet."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
