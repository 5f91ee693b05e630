"""Folders of our own: never reached through a symbolic link, and recognised while they are open."""

from __future__ import annotations

import os
import stat
import weakref
from pathlib import Path

from ebclab.errors import RunError


def own_folder(around: Path, *names: str) -> Path:
    """Return the path of a folder of our own within ``around``, which may be missing.

    The author of ``around`` decides where a link in it leads, and files there would be deleted or replaced. The
    folder ``around`` itself may be a link: the user named it.
    """
    path = around
    for name in names:
        path /= name
        try:
            mode = path.lstat().st_mode
        except OSError:  # missing, or not readable, which using it will report
            continue
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):  # a file is told where it is used as a folder
            what = "a symbolic link" if stat.S_ISLNK(mode) else "something that is not a folder"
            raise RunError(
                f"{path}: a folder of ebclab belongs here, got {what}, which is not followed; "
                "delete it, or put a folder in its place"
            )
    return path


class OpenFolder:
    """An open folder, to detect whether a path still refers to it; while it is open, its inode number is not reused."""

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
