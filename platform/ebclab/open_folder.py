"""Identifies a folder, to detect whether a path still refers to the same one."""

from __future__ import annotations

import os
import weakref
from pathlib import Path


class OpenFolder:
    """An open folder; while it is open, its inode number is not reused.

    Args:
        descriptor: File descriptor of the folder; closed when this object is garbage-collected.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def at(cls, path: Path) -> OpenFolder | None:
        """Open a folder; None if it does not exist."""
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        except FileNotFoundError:
            return None

    def is_at(self, path: Path) -> bool:
        """Return whether ``path`` still refers to this folder."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except OSError:
            return False
