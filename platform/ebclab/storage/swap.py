"""Compare and swap: a small file that a process replaces only if it is unchanged since it was read.

On a disk it is locked. In a store it is replaced by the store's own conditional writes (If-None-Match, If-Match)
through obstore, since pyarrow, which is used for most other requests, has none. Whether a store honors the conditions
is tested once per process, since some S3-compatible stores ignore them. Only what the store has answered is kept: a
test that failed says nothing about the next one.

A store without conditional writes is refused. There, a write that was delayed for longer than a lease lives replaces
the lease of the process that took over meanwhile, whatever was compared before it was sent: the delayed process regains
a folder that another one writes to, and the other one is stopped. ``UNGUARDED`` permits such a store to users who start
nothing twice.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ebclab.background import warn_once
from ebclab.errors import StoreError
from ebclab.storage import atomic
from ebclab.storage.filesystem import (
    Bucket,
    Location,
    bucket_of,
    first_line,
    in_our_errors,
    through_obstore,
    with_retries,
)
from ebclab.storage.lock import held
from ebclab.storage.object_store import UNGUARDED, RemoteFolder, Store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

_TRIED: dict[Bucket, tuple[ObjectStore | None, str]] = {}
"""What stores have answered to the test: the bucket, or None and why conditional writes cannot be used."""

_NOT_IMPLEMENTED = "status code: 501"


@dataclass(frozen=True)
class Seen:
    """State of a file when it was read or written."""

    content: bytes
    # entity tag of this content, for conditional writes; None if the content itself is compared
    etag: str | None = None
    generation: str | None = None  # version of this content, in stores that number their writes; else None


class ReplacedError(Exception):
    """Raised if a file is not, or no longer, the one that a write was to replace."""


class _NotImplementedByStoreError(StoreError):
    """A store says that it does not implement conditional writes."""


class SwapFile(ABC):
    """A small file that is replaced only if it is unchanged since it was read.

    Subclasses make single requests, about ``path`` or a temporary file beside it; here they are retried.
    """

    _seconds: float | None = None
    """Time for which a request is retried; None means ``patience_seconds``."""

    def __init__(self, path: str | Path, where: str) -> None:
        self.path, self._where = str(path), where

    def within(self, seconds: float) -> SwapFile:
        """Return the same file, requests for which are retried for ``seconds``."""
        other = copy(self)
        other._seconds = seconds
        return other

    def read(self) -> Seen | None:
        """Return the file; None if there is none."""
        try:
            return self._ask(self._get)
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        """Replace the file ``over``, or create the file if ``over`` is None.

        Raises:
            ReplacedError: The file has been replaced, created or deleted in the meantime.
        """
        try:
            return self._ask(lambda: self._swap(content, over))
        except FileNotFoundError as error:
            raise ReplacedError from error

    def write_once(self, content: bytes, *, over: Seen | None) -> Seen:
        """Do what ``write`` does with content that nobody else writes: one whose answer was lost has succeeded."""
        try:
            return self.write(content, over=over)
        except ReplacedError:
            found = self.read()
            if found is None or found.content != content:
                raise
            return found

    def delete(self) -> None:
        """Delete the file, if it exists."""
        self._remove(self.path)

    def changed(self) -> datetime | None:
        """Return the file's modification time by the store's clock; None if there is no file."""
        return self._changed(self.path)

    def now(self) -> datetime | None:
        """Return the store's time, read from a temporary file; None if that was deleted in the meantime."""
        path = f"{self.path[: self.path.rfind('/') + 1]}.clock-{uuid.uuid4().hex}"
        self._ask(lambda: self._touch(path))
        try:
            return self._changed(path)
        finally:
            self._remove(path)

    def _changed(self, path: str) -> datetime | None:
        try:
            return self._ask(lambda: self._modified(path))
        except FileNotFoundError:
            return None

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._ask(lambda: self._delete(path))

    def _ask(self, request: Callable[[], T]) -> T:
        return with_retries(request, self._where, seconds=self._seconds)

    @abstractmethod
    def _get(self) -> Seen | None: ...

    @abstractmethod
    def _swap(self, content: bytes, over: Seen | None) -> Seen: ...

    @abstractmethod
    def _touch(self, path: str) -> None: ...

    @abstractmethod
    def _modified(self, path: str) -> datetime | None: ...

    @abstractmethod
    def _delete(self, path: str) -> None: ...


class LocalFile(SwapFile):
    """A file on a disk (file:///), which is locked during reads and writes."""

    def _get(self) -> Seen | None:
        with held(Path(self.path), fcntl.LOCK_SH, os.O_RDONLY) as descriptor:
            return _seen(descriptor)

    def _swap(self, content: bytes, over: Seen | None) -> Seen:
        flags = os.O_RDWR
        if over is None:
            self._make_folder()
            flags |= os.O_CREAT
        with held(Path(self.path), fcntl.LOCK_EX, flags) as descriptor:
            if _seen(descriptor) != over:
                raise ReplacedError
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))
            os.fsync(descriptor)
        return Seen(content)

    def _make_folder(self) -> None:
        try:
            atomic.make_folder(Path(self.path).parent)
        except FileNotFoundError as error:  # as in /proc
            raise StoreError(
                f"{self._where}: the folder cannot be made, got {error.strerror}; choose another"
            ) from error

    def _touch(self, path: str) -> None:
        Path(path).touch()

    def _modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)

    def _delete(self, path: str) -> None:
        Path(path).unlink()


def _seen(descriptor: int) -> Seen | None:
    """Return the content of an open file; a new, empty one counts as absent."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    return Seen(content) if content else None


class StoredFile(SwapFile):
    """A file in a store; ``path`` is its name below the folder.

    With a ``bucket`` its writes are conditional. Without, it is compared before each try of a write, so that a write
    that is retried while another process takes the file does not replace it. Two writers that compare at the same time
    may both write, and so may a request that is delayed after its comparison; the later write then wins.
    """

    def __init__(self, name: str, remote: RemoteFolder, bucket: ObjectStore | None = None) -> None:
        super().__init__(name, remote.address)
        self._remote, self._bucket = remote, bucket

    def _store(self, may_change: Callable[[], None] | None = None) -> Store:
        return Store(self._remote, seconds=self._seconds, may_change=may_change)

    def _key(self) -> str:
        return self._store().location.inner_path(f"{self._remote.inside}/{self.path}").partition("/")[2]

    def _get(self) -> Seen:
        if self._bucket is None:
            return Seen(self._store().read(self.path))
        found = self._bucket.get(self._key())
        return Seen(bytes(found.bytes()), found.meta["e_tag"], found.meta["version"])

    def _swap(self, content: bytes, over: Seen | None) -> Seen:
        if self._bucket is not None:
            made = self._bucket.put(self._key(), content, mode=_condition(over))
            return Seen(content, made["e_tag"], made["version"])

        def require_unchanged() -> None:
            if self.read() != over:
                raise ReplacedError

        self._store(require_unchanged).write(self.path, content)
        return Seen(content)

    def _ask(self, request: Callable[[], T]) -> T:
        return super()._ask(lambda: _in_our_errors(request))

    def _touch(self, path: str) -> None:
        self._store().write(path, b"")

    def _modified(self, path: str) -> datetime | None:
        stored = self._store().stored(path)
        return stored.changed if stored is not None else None

    def _delete(self, path: str) -> None:
        self._store().delete(path)


def _condition(over: Seen | None) -> Any:
    """Return the condition of a write in the form that obstore expects."""
    if over is None:
        return "create"
    return {name: value for name, value in (("e_tag", over.etag), ("version", over.generation)) if value is not None}


def _in_our_errors(request: Callable[[], T]) -> T:
    """Perform a request through obstore; a failed condition raises a ReplacedError."""
    from obstore import exceptions

    try:
        return in_our_errors(request)
    except OSError as error:
        if isinstance(error.__cause__, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            raise ReplacedError from error
        if _NOT_IMPLEMENTED in str(error):
            raise _NotImplementedByStoreError(str(error)) from error
        raise


def readable_file(remote: RemoteFolder, name: str) -> SwapFile:
    """Return the file ``name`` of a folder to read it; to write it too, on a disk or without conditional writes."""
    location = Store(remote).location
    if location.filesystem.type_name == "local":
        return LocalFile(location.inner_path(f"{remote.inside}/{name}"), remote.address)
    return StoredFile(name, remote)


def writable_file(remote: RemoteFolder, name: str) -> SwapFile:
    """Return the file ``name`` of a folder for compare and swap.

    A store without usable conditional writes is refused, or logged once per process and bucket if the user permits it.
    """
    location = Store(remote).location
    if location.filesystem.type_name == "local":
        return readable_file(remote, name)
    bucket, reason = _TRIED.get(bucket_of(location)) or _tried(remote, location)
    if bucket is not None:
        return StoredFile(name, remote, bucket)
    if os.environ.get(UNGUARDED) != "1":
        raise StoreError(
            f"{remote.address}: no conditional writes here, got {reason}; without them a delayed process may write to "
            f"a folder that another one has taken over: use a store that has them, or set {UNGUARDED}=1 if you start "
            "nothing twice"
        )
    place = location.path.partition("?")[0]
    warn_once(
        "ebclab.storage",
        f"{place}: no conditional writes here, got {reason}; two launches of one folder may both write, which "
        f"{UNGUARDED}=1 permits",
    )
    return readable_file(remote, name)


def _tried(remote: RemoteFolder, location: Location) -> tuple[ObjectStore | None, str]:
    """Open a bucket and test conditional writes with a temporary file in ``remote``; keep what the store answers.

    Returns:
        The bucket and an empty string; or None and the reason why conditional writes cannot be used.
    """
    folder = location.inner_path(remote.inside).partition("/")[2]
    bucket, problem = with_retries(lambda: through_obstore(location, folder), remote.address)
    if bucket is None:
        return None, problem
    problem = _problem(StoredFile(f".try-{uuid.uuid4().hex}", remote, bucket))
    _TRIED[bucket_of(location)] = found = (None, problem) if problem else (bucket, "")
    return found


def _problem(file: StoredFile) -> str:
    """Test two allowed and two forbidden writes of a new file, then delete it; return the problem, empty if none."""
    try:
        first = file.write_once(b"1", over=None)
        file.write_once(b"2", over=first)
        for header, over in (("If-None-Match", None), ("If-Match", first)):
            if not _refuses(file, over):
                return f"a store that ignores {header}"
        return ""
    except ReplacedError:
        return "a store that refuses a write whose condition holds"
    except _NotImplementedByStoreError as error:
        return first_line(error)
    finally:
        with suppress(StoreError):
            file.delete()


def _refuses(file: StoredFile, over: Seen | None) -> bool:
    try:
        file.write(b"3", over=over)
    except ReplacedError:
        return True
    return False
