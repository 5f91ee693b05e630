"""Files and folders that are whole or absent: written aside, synced, renamed."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_EIGHT_HEX = "[0-9a-f]" * 8


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text`` (UTF-8) in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the file at ``path`` by ``content`` in one step."""
    write_parts(path, [content])


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Replace the file at ``path`` by ``parts``, one after the other, in one step; they may be read from that file."""
    aside = _hidden(path)
    try:
        with aside.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_path(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace the file at ``path`` by ``value`` as indented JSON in one step."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside ``target`` to fill; on success sync its files and rename it to ``target``.

    On any error the half-filled folder is removed and ``target`` never appears.
    """
    make_folder(target.parent)
    aside = _hidden(target)
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
    """Make a folder and those above it, unless they exist, so that it survives a power cut."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_path(each.parent)


def set_aside(path: Path) -> Path:
    """Rename a file or folder to a hidden name beside it, which no reader takes for it; return the new path."""
    aside = _hidden(path)
    path.rename(aside)
    sync_path(path.parent)
    return aside


def remove_folder(path: Path) -> None:
    """Remove a folder: no reader ever finds it with a part of its files. What cannot be removed stays."""
    with suppress(OSError):
        shutil.rmtree(set_aside(path))
        sync_path(path.parent)


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove the hidden folders that writes and removals of ``name`` in ``folder`` left when they were killed.

    Args:
        folder: A folder that this process alone writes into.
        name: Name of the files or folders that were written, a pattern of ``glob``.
    """
    for path in folder.glob(f".{name}.{_EIGHT_HEX}"):
        shutil.rmtree(path, ignore_errors=True)


def sync_path(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
