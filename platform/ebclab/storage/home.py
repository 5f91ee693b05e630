"""Where a run or a sweep in an object store lives, and where each process keeps its copy of it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ebclab.data.filesystem import is_address

COPIES = "EBCLAB_COPIES"
"""Variable that names the folder for copies; ~/.cache/ebclab/copies when it is not set."""

Role = Literal["user", "worker", "controller"]


@dataclass(frozen=True)
class Home:
    """A folder in an object store.

    Processes of different roles on one machine have copies of their own: a worker writes into its copy what the user's
    process only reads into another one.

    Attributes:
        root: Address of the folder that the user named, with what follows a question mark.
        inside: Path of this folder below it.
        role: Whose copy is meant.
    """

    root: str
    inside: str
    role: Role = "user"

    @property
    def address(self) -> str:
        """The folder's own address, as every verb takes it."""
        base, mark, options = self.root.partition("?")
        return f"{base.rstrip('/')}/{self.inside}{mark}{options}"

    @property
    def copy(self) -> Path:
        """This role's copy on this machine's disk."""
        key = hashlib.sha256(self.root.encode()).hexdigest()[:16]
        return copies_folder() / key / self.role / self.inside

    def __truediv__(self, name: str) -> Home:
        return replace(self, inside=f"{self.inside}/{name}")

    def of(self, role: Role) -> Home:
        """Return the same folder with the copy of another role."""
        return replace(self, role=role)


def home_in(parent: str | Path, name: str) -> Home | None:
    """Return the home of the folder ``name`` in ``parent``, or None when that is a local folder."""
    return Home(str(parent), name) if is_address(str(parent)) else None


def home_at(address: str | Path) -> Home | None:
    """Return the home that is a folder's own address, or None when it is a local path."""
    text = str(address)
    if not is_address(text):
        return None
    base, mark, options = text.partition("?")
    parent, _, name = base.rstrip("/").rpartition("/")
    return Home(f"{parent}{mark}{options}", name)


def copies_folder() -> Path:
    """Return the folder that holds this machine's copies."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(COPIES) or Path(cache) / "ebclab" / "copies").expanduser().absolute()
