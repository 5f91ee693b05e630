"""The kinds of folders that a process works in, with the names of the files by which others know them.

Folders of our own within them are never reached through a symbolic link, and recognised while they are open.
"""

from __future__ import annotations

import os
import stat
import weakref
from dataclasses import dataclass
from pathlib import Path

from ebclab.errors import RunError


@dataclass(frozen=True)
class Kind:
    """A kind of folder."""

    name: str  # its name, for messages
    settings: str  # file that makes a folder one of this kind; deleted last
    result: str  # file that exists only when the work has finished; written and uploaded last, deleted first
    busy: str  # activity of the process that holds the folder, for messages
    option: str  # command-line option that selects another parent folder, for messages
    log: str = ""  # file to which lines are appended; empty if there is none
    inside: str = ""  # direct subfolder that other processes sync; empty if there is none
    chosen_by: str = "--name"  # command-line option that selects another folder, for messages
    leftover: str = ""  # file or folder that may be there before the settings; empty if there is none

    @property
    def files(self) -> set[str]:
        """Settings, result and log."""
        return {self.settings, self.result, self.log} - {""}


RUN = Kind(
    "run",
    "config.yaml",
    "result.json",
    "is training in this folder",
    "--runs",
    log="metrics.jsonl",
    leftover="error.txt",
)
SWEEP = Kind(
    "sweep", "sweep.yaml", "result.json", "works on this sweep", "--sweeps", log="trials.jsonl", inside="trials"
)
COMPARISON = Kind(
    "comparison",
    "comparison.yaml",
    "comparison.json",
    "works on this comparison",
    "--comparisons",
    inside="sweeps",
    leftover="sweeps/pilot",
)
REPRODUCTION = Kind(
    "reproduction", "plan.json", "table.json", "works on this reproduction", "--to", inside="runs", chosen_by="--to"
)
KINDS = {kind.name: kind for kind in (RUN, SWEEP, COMPARISON, REPRODUCTION)}

RESULTS = {kind.result for kind in KINDS.values()}
"""Files that are uploaded after all others of their folder."""

SEGMENTED = (SWEEP.log,)
"""Logs that are only appended to, and so often that a store gets them in parts; a run's log may be rewritten."""


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
