"""A folder that is known again: whether it is still the same one that lies at a path."""

from __future__ import annotations

import os
import weakref
from pathlib import Path


class OpenFolder:
    """A folder that is held open, so that no other one gets its number on the disk.

    Args:
        descriptor: Of the folder; closed with this object.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def at(cls, path: Path) -> OpenFolder | None:
        """Open a folder; None where there is none."""
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        except FileNotFoundError:
            return None

    def is_at(self, path: Path) -> bool:
        """Return whether it is still this folder that lies there."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except OSError:
            return False
