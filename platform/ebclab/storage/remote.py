"""RemoteFolder: a folder in an object store, and the local copies of it."""

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
from urllib.parse import unquote

from ebclab.config.addresses import credentials_problem, expanded, form_problem, in_address, is_address, path_problem
from ebclab.errors import UserError

COPIES = "EBCLAB_COPIES"
"""Environment variable with the folder of local copies; default: ebclab/copies in $XDG_CACHE_HOME or ~/.cache."""

UNGUARDED = "EBCLAB_STORAGE_UNGUARDED"
"""Environment variable that permits stores without conditional writes if it is 1."""

Role = Literal["user", "worker", "controller", "reader"]
"""Role of a process: started by the user, worker, controller of workers, or reader, which changes nothing."""


@dataclass(frozen=True)
class RemoteFolder:
    """A folder in an object store.

    Each role has its own local copy on a machine: the worker that writes must not share one with the user's process,
    which pulls. Each reader process has a private copy, which is deleted when the process exits.
    """

    root: str  # address of the folder that the user specified, including the options after its question mark
    inside: str  # path of this folder below the root; empty if it is the root itself, e.g. a bucket
    role: Role = "user"  # role of the process, which selects the local copy ``cache``

    @property
    def address(self) -> str:
        """The folder's address, in the form that all commands accept."""
        base, mark, options = self.root.partition("?")
        return f"{'/'.join([base.rstrip('/'), in_address(self.inside)]).rstrip('/')}{mark}{options}"

    @property
    def cache(self) -> Path:
        """Path of the local copy of this role."""
        key = hashlib.sha256(self.root.encode()).hexdigest()[:16]
        if self.role == "reader":
            return _folder_of_this_process(cache_folder(), os.getpid()) / key / self.inside
        return cache_folder() / key / self.role / self.inside

    def __truediv__(self, name: str) -> RemoteFolder:
        return replace(self, inside=f"{self.inside}/{name}".lstrip("/"))

    def of(self, role: Role) -> RemoteFolder:
        """Return the same folder with the local copy of another role."""
        return replace(self, role=role)


def remote_in(parent: str | Path, name: str) -> RemoteFolder | None:
    """Return the remote folder ``name`` in ``parent``, or None if ``parent`` is a local folder."""
    return None if remote_at(parent) is None else RemoteFolder(str(parent), name)


def remote_at(address: str | Path) -> RemoteFolder | None:
    """Return the remote folder at ``address``, or None if that is a local path."""
    text = str(address)
    if not is_address(text):
        return None
    if problem := form_problem(text) or credentials_problem(text) or path_problem(text):
        raise UserError(f"storage: {problem}")
    base, mark, options = text.partition("?")
    scheme, separator, path = base.partition("://")
    path = path.rstrip("/")
    if not path:
        raise UserError(f"{text}: an address without a bucket; write {scheme}://BUCKET/FOLDER")
    parent, _, name = path.rpartition("/")
    if not parent:  # a bucket has no parent that could be opened
        return RemoteFolder(f"{scheme}{separator}{path}{mark}{options}", "")
    return RemoteFolder(f"{scheme}{separator}{parent}{mark}{options}", unquote(name))


def cache_folder() -> Path:
    """Return the folder that contains the local copies of this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return expanded(os.environ.get(COPIES) or f"{cache}/ebclab/copies").absolute()


@lru_cache(maxsize=16)
def _folder_of_this_process(copies: Path, process: int) -> Path:
    """Return the folder of this reader's copies, which is deleted at exit; delete those of killed readers."""
    host = socket.gethostname()
    for path in (copies / "readers").glob(f"{host}-*"):
        number = path.name.removeprefix(f"{host}-")
        if number.isdecimal() and not may_live(int(number)):
            shutil.rmtree(path, ignore_errors=True)
    folder = copies / "readers" / f"{host}-{process}"
    atexit.register(_forget, folder, process)
    return folder


def _forget(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child must not delete it
        shutil.rmtree(folder, ignore_errors=True)


def may_live(process: int) -> bool:
    """Return whether a process of this machine is alive; True if that cannot be determined."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
