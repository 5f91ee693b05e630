"""A folder in an object store: its address, local copies and files; requests are retried while the store is silent."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar
from urllib.parse import unquote

from ebclab.background import warn_once
from ebclab.config.addresses import credentials_problem, expanded, form_problem, in_address, is_address, path_problem
from ebclab.errors import DataError, RunError, UserError
from ebclab.storage.atomic import hidden_beside
from ebclab.storage.filesystem import (
    COPIED_BYTES,
    Location,
    copied,
    in_our_errors,
    through_obstore,
    whole_or_not,
    with_retries,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyarrow import NativeFile


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


_log = logging.getLogger("ebclab.storage")
T = TypeVar("T")


@dataclass(frozen=True)
class Stored:
    """Size and modification time of a file in a store."""

    num_bytes: int  # its size in bytes
    changed: datetime | None  # its modification time by the store's clock, or None if unknown


class Store:
    """Requests for the files of one remote folder.

    Args:
        seconds: Seconds for which a request is retried; None means ``patience_seconds``.
        may_change: Called before each request that modifies the store, retries included; raises an error if this
            process must not do so.
    """

    def __init__(
        self, remote: RemoteFolder, *, seconds: float | None = None, may_change: Callable[[], None] | None = None
    ) -> None:
        self.location = with_retries(lambda: _place(remote.root), remote.root, seconds=seconds)
        self.address, self._remote, self._seconds, self._may_change = remote.address, remote, seconds, may_change

    def names(self) -> dict[str, Stored]:
        """Return size and time of every file by its path below the folder; empty if there is no such folder.

        Names that are not valid paths on a disk, such as ``a/../b`` and ``a//b``, are skipped with a warning.
        """
        from pyarrow import fs

        inside = self._inner("")
        selector = fs.FileSelector(inside, recursive=True, allow_not_found=True)
        infos = self._ask(lambda: self.location.filesystem.get_file_info(selector), "")
        files = (info for info in infos if info.is_file and not info.path.endswith("/"))
        found = {info.path[len(inside) + 1 :]: Stored(info.size, info.mtime) for info in files}
        if unusable := sorted(name for name in found if not _is_path_below(name)):
            _log.warning(
                "%s: %d names that no file on a disk can have are left out, such as %r",
                self.address,
                len(unusable),
                unusable[0],
            )
        return {name: stored for name, stored in found.items() if _is_path_below(name)}

    def stored(self, name: str) -> Stored | None:
        """Return size and time of the file ``name``, or None if there is none."""
        info = self._ask(lambda: self.location.filesystem.get_file_info(self._inner(name)), name)
        return Stored(info.size, info.mtime) if info.is_file else None

    def read(self, name: str) -> bytes:
        """Return the content of the file ``name``."""

        def read() -> bytes:
            with self.location.filesystem.open_input_stream(self._inner(name), compression=None) as file:
                return bytes(file.read())

        return self._ask(read, name)

    def download(self, name: str, target: Path) -> None:
        """Download the file ``name`` to ``target`` atomically."""

        def download(aside: Path) -> None:
            with (
                self.location.filesystem.open_input_stream(self._inner(name), compression=None) as source,
                aside.open("wb") as file,
            ):
                shutil.copyfileobj(source, file, COPIED_BYTES)

        self._make(target, download, name)

    def keep(self, name: str, content: bytes, target: Path) -> None:
        """Atomically write ``content``, assembled from the file ``name``, to the local file ``target``."""
        self._make(target, lambda aside: aside.write_bytes(content), name)

    def _make(self, target: Path, write: Callable[[Path], object], name: str) -> None:
        aside = hidden_beside(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._ask(lambda: write(aside), name)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)

    def upload(self, source: Path, name: str) -> None:
        """Upload a local file as the file ``name``."""

        def upload() -> None:
            self._require_mine()
            with source.open("rb") as file, self._opened(name) as target:
                copied(file, target)

        self._ask(upload, name)

    def write(self, name: str, content: bytes) -> None:
        """Upload ``content`` as the file ``name``."""

        def write() -> None:
            self._require_mine()
            with self._opened(name) as target:
                target.write(content)

        self._ask(write, name)

    def delete(self, name: str) -> None:
        """Delete the file ``name``, if it exists; through obstore in S3, where pyarrow would leave an empty object."""

        def delete() -> None:
            self._require_mine()
            bucket, inner = self._bucket(), self._inner(name)
            self._require_mine()  # again: testing the bucket, once per process, may have taken seconds
            if bucket is None:
                self.location.filesystem.delete_file(inner)
            else:
                in_our_errors(lambda: bucket.delete(inner.partition("/")[2]))

        with suppress(FileNotFoundError):
            self._ask(delete, name)

    def _bucket(self) -> ObjectStore | None:
        """Return the bucket opened through obstore; None if pyarrow is to be used or obstore cannot reach it."""
        if self.location.filesystem.type_name != "s3":
            return None
        bucket, reason = through_obstore(self.location, self._inner("").partition("/")[2])
        if bucket is None:
            warn_once(
                "ebclab.storage",
                f"{self.location.path}: obstore cannot delete here, got {reason}; pyarrow does, and leaves an empty "
                "object whose name ends in / in each folder that it deletes from",
            )
        return bucket

    def _require_mine(self) -> None:
        if self._may_change is not None:
            self._may_change()

    def _opened(self, name: str) -> AbstractContextManager[BinaryIO | NativeFile]:
        """Open the file ``name`` for writing; it becomes whole, or does not change."""
        return whole_or_not(self.location.filesystem, self._inner(name))

    def _inner(self, name: str) -> str:
        return self.location.inner_path(f"{self._remote.inside}/{name}" if name else self._remote.inside)

    def _ask(self, request: Callable[[], T], name: str) -> T:
        """Make a request about the file ``name``, or about the folder if it is empty."""
        where = self.address if not name or name.startswith(".") else (self._remote / name).address
        return with_retries(request, where, seconds=self._seconds)


def _is_path_below(name: str) -> bool:
    """Return whether a name in a store is also a valid path of a file below the folder on a disk."""
    return "\0" not in name and {"", ".", ".."}.isdisjoint(name.split("/"))


def holds(place: str | Path, name: str) -> bool:
    """Return whether a folder, given by its path or its address in a store, contains a file ``name``."""
    remote = remote_at(place)
    return Path(place, name).is_file() if remote is None else Store(remote).stored(name) is not None


def send(remote: RemoteFolder, *names: str) -> None:
    """Upload files of the local copy of ``remote``."""
    for name in names:
        Store(remote).upload(remote.cache / name, name)


def fetched(file: str) -> Path:
    """Return the local path of a file given by path or by address; a file in a store is downloaded."""
    remote = remote_at(file)
    if remote is None:
        return Path(file)
    if not remote.inside:
        raise UserError(f"{file}: a whole bucket, not a file; name a file in it")
    try:
        Store(remote).download("", remote.cache)
    except FileNotFoundError as error:
        raise RunError(f"{file}: there is no such file in the store") from error
    return remote.cache


@lru_cache(maxsize=16)
def _place(root: str) -> Location:
    """Open the root once per process, since opening requests the region from the store."""
    try:
        return Location(root, "storage")
    except DataError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        raise
