"""Files and folders that are whole or absent: written aside, synced, renamed."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text`` (UTF-8) in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the file at ``path`` by ``content`` in one step."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("wb") as file:
            file.write(content)
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
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    aside.mkdir(parents=True)
    try:
        yield aside
        for path in aside.rglob("*"):
            sync_path(path)
        sync_path(aside)
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sync_path(target.parent)


def sync_path(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
