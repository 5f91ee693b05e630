"""Recognises a folder: whether a path still leads to the same one."""

from __future__ import annotations

import os
import weakref
from pathlib import Path


class OpenFolder:
    """A folder held open, so that its inode number is not reused for another one.

    Args:
        descriptor: File descriptor of the folder; closed with this object.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def at(cls, path: Path) -> OpenFolder | None:
        """Open a folder; None if there is none."""
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        except FileNotFoundError:
            return None

    def is_at(self, path: Path) -> bool:
        """Return whether ``path`` still leads to this folder."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except OSError:
            return False
