"""Where a run or a sweep in an object store lives, and where each process keeps its copy of it."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import socket
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ebclab.config.addresses import is_address
from ebclab.errors import UserError

COPIES = "EBCLAB_COPIES"
"""Variable that names the folder for copies; ~/.cache/ebclab/copies when it is not set."""

Role = Literal["user", "worker", "controller", "reader"]
"""Whose copy: of the process that the user started, of a worker, of what starts workers, of one process that reads."""


@dataclass(frozen=True)
class RemoteFolder:
    """A folder in an object store.

    Processes of different roles on one machine have copies of their own: a worker writes into its copy what the user's
    process only reads into another one. Every process that only reads has a copy to itself, which ends with it.

    Attributes:
        root: Address of the folder that the user named, with what follows a question mark.
        inside: Path of this folder below it; empty when it is the root itself, such as a bucket.
        role: Whose copy is meant.
    """

    root: str
    inside: str
    role: Role = "user"

    @property
    def address(self) -> str:
        """The folder's own address, as every verb takes it."""
        base, mark, options = self.root.partition("?")
        return f"{'/'.join([base.rstrip('/'), self.inside]).rstrip('/')}{mark}{options}"

    @property
    def cache(self) -> Path:
        """This role's copy on this machine's disk."""
        key = hashlib.sha256(self.root.encode()).hexdigest()[:16]
        if self.role == "reader":
            return _folder_of_this_process(cache_folder(), os.getpid()) / key / self.inside
        return cache_folder() / key / self.role / self.inside

    def __truediv__(self, name: str) -> RemoteFolder:
        return replace(self, inside=f"{self.inside}/{name}".lstrip("/"))

    def of(self, role: Role) -> RemoteFolder:
        """Return the same folder with the copy of another role."""
        return replace(self, role=role)


def remote_in(parent: str | Path, name: str) -> RemoteFolder | None:
    """Return the home of the folder ``name`` in ``parent``, or None when that is a local folder.

    Raises:
        UserError: The address names no bucket.
    """
    return None if remote_at(parent) is None else RemoteFolder(str(parent), name)


def remote_at(address: str | Path) -> RemoteFolder | None:
    """Return the home that is a folder's own address, or None when it is a local path.

    Raises:
        UserError: The address names no bucket.
    """
    text = str(address)
    if not is_address(text):
        return None
    base, mark, options = text.partition("?")
    scheme, separator, path = base.partition("://")
    path = path.rstrip("/")
    if not path:
        raise UserError(f"{text}: an address without a bucket; write {scheme}://BUCKET/FOLDER")
    parent, _, name = path.rpartition("/")
    if not parent:  # nothing above it that could be opened
        return RemoteFolder(f"{scheme}{separator}{path}{mark}{options}", "")
    return RemoteFolder(f"{scheme}{separator}{parent}{mark}{options}", name)


def cache_folder() -> Path:
    """Return the folder that holds this machine's copies."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(COPIES) or Path(cache) / "ebclab" / "copies").expanduser().absolute()


@lru_cache(maxsize=16)
def _folder_of_this_process(copies: Path, process: int) -> Path:
    """Return the folder for what this process reads, which ends with it; those of killed processes are deleted."""
    host = socket.gethostname()
    for path in (copies / "readers").glob(f"{host}-*"):
        if not _is_alive(path.name.removeprefix(f"{host}-")):
            shutil.rmtree(path, ignore_errors=True)
    folder = copies / "readers" / f"{host}-{process}"
    atexit.register(_forget, folder, process)
    return folder


def _forget(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not a fork of it
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: str) -> bool:
    """Return whether a process of this machine lives, or cannot be told from one that does."""
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True
