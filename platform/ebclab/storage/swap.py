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
from contextlib import ExitStack, suppress
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

    Requests are retried for ``seconds``; None means ``patience_seconds``.
    """

    @abstractmethod
    def read(self) -> Seen | None:
        """Return the file; None if there is none."""

    @abstractmethod
    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        """Replace the file ``over``, or create the file if ``over`` is None.

        Raises:
            ReplacedError: The file has been replaced, created or deleted in the meantime.
        """

    @abstractmethod
    def delete(self) -> None:
        """Delete the file, if it exists."""

    @abstractmethod
    def changed(self) -> datetime | None:
        """Return the file's modification time by the store's clock; None if there is no file."""

    @abstractmethod
    def now(self) -> datetime | None:
        """Return the store's time, read from a temporary file; None if that was deleted in the meantime."""


def _clock_name() -> str:
    """Return a unique name for a temporary file from which the store's time is read."""
    return f".clock-{uuid.uuid4().hex}"


class LocalFile(SwapFile):
    """A file on a disk (file:///), which is locked during reads and writes."""

    def __init__(self, path: Path, where: str, *, seconds: float | None = None) -> None:
        self._path, self._where, self._seconds = path, where, seconds

    def read(self) -> Seen | None:
        def read() -> Seen | None:
            try:
                with held(self._path, fcntl.LOCK_SH, os.O_RDONLY) as descriptor:
                    return _seen(descriptor)
            except FileNotFoundError:
                return None

        return self._patiently(read)

    def _make_folder(self) -> None:
        try:
            atomic.make_folder(self._path.parent)
        except FileNotFoundError as error:  # as in /proc
            raise StoreError(
                f"{self._where}: the folder cannot be made, got {error.strerror}; choose another"
            ) from error

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        def write() -> Seen:
            with ExitStack() as stack:
                if over is None:
                    self._make_folder()
                try:
                    flags = os.O_RDWR | (os.O_CREAT if over is None else 0)
                    descriptor = stack.enter_context(held(self._path, fcntl.LOCK_EX, flags))
                except FileNotFoundError as error:
                    raise ReplacedError from error
                if _seen(descriptor) != over:
                    raise ReplacedError
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))
                os.fsync(descriptor)
            return Seen(content)

        return self._patiently(write)

    def delete(self) -> None:
        self._patiently(lambda: self._path.unlink(missing_ok=True))

    def changed(self) -> datetime | None:
        return self._patiently(lambda: _modified(self._path))

    def now(self) -> datetime | None:
        path = self._path.with_name(_clock_name())

        def now() -> datetime | None:
            path.touch()
            try:
                return _modified(path)
            finally:
                path.unlink(missing_ok=True)

        return self._patiently(now)

    def _patiently(self, work: Callable[[], T]) -> T:
        return with_retries(work, self._where, seconds=self._seconds)


def _seen(descriptor: int) -> Seen | None:
    """Return the content of an open file; a new, empty one counts as absent."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    return Seen(content) if content else None


def _modified(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


class _PlainFile(SwapFile):
    """A file in a store without conditional writes.

    It is compared before each try of a write, so that a write that is retried while another process takes the file does
    not replace it. Two writers that compare at the same time may both write, and so may a request that is delayed after
    its comparison; the later write then wins.
    """

    def __init__(self, remote: RemoteFolder, name: str, *, seconds: float | None = None) -> None:
        self._remote, self._name, self._seconds = remote, name, seconds
        self._store = Store(remote, seconds=seconds)

    def read(self) -> Seen | None:
        try:
            return Seen(self._store.read(self._name))
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        def require_unchanged() -> None:
            if self.read() != over:
                raise ReplacedError

        Store(self._remote, seconds=self._seconds, may_change=require_unchanged).write(self._name, content)
        return Seen(content)

    def delete(self) -> None:
        self._store.delete(self._name)

    def changed(self) -> datetime | None:
        return self._changed(self._name)

    def now(self) -> datetime | None:
        name = _clock_name()
        self._store.write(name, b"")
        try:
            return self._changed(name)
        finally:
            self._store.delete(name)

    def _changed(self, name: str) -> datetime | None:
        stored = self._store.stored(name)
        return stored.changed if stored is not None else None


class ConditionalFile(SwapFile):
    """A file in a store with conditional writes."""

    def __init__(self, store: ObjectStore, path: str, where: str, *, seconds: float | None = None) -> None:
        self._store, self._path, self._where, self._seconds = store, path, where, seconds

    def read(self) -> Seen | None:
        def read() -> Seen:
            found = self._store.get(self._path)
            return Seen(bytes(found.bytes()), found.meta["e_tag"], found.meta["version"])

        try:
            return self._ask(read)
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        def write() -> Seen:
            made = self._store.put(self._path, content, mode=_condition(over))
            return Seen(content, made["e_tag"], made["version"])

        try:
            return self._ask(write)
        except FileNotFoundError as error:
            raise ReplacedError from error

    def delete(self) -> None:
        with suppress(FileNotFoundError):
            self._ask(lambda: self._store.delete(self._path))

    def changed(self) -> datetime | None:
        return self._changed(self._path)

    def now(self) -> datetime | None:
        path = f"{self._path.rpartition('/')[0]}/{_clock_name()}".lstrip("/")
        self._ask(lambda: self._store.put(path, b"", mode="overwrite"))
        try:
            return self._changed(path)
        finally:
            self._ask(lambda: self._store.delete(path))

    def _changed(self, path: str) -> datetime | None:
        try:
            return self._ask(lambda: self._store.head(path)["last_modified"])
        except FileNotFoundError:
            return None

    def _ask(self, request: Callable[[], T]) -> T:
        return with_retries(lambda: _in_our_errors(request), self._where, seconds=self._seconds)


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


def readable_file(remote: RemoteFolder, name: str, *, seconds: float | None = None) -> SwapFile:
    """Return the file ``name`` of a folder to read it; to write it too, on a disk or without conditional writes."""
    location = Store(remote).location
    if location.filesystem.type_name == "local":
        return LocalFile(Path(location.inner_path(f"{remote.inside}/{name}")), remote.address, seconds=seconds)
    return _PlainFile(remote, name, seconds=seconds)


def writable_file(remote: RemoteFolder, name: str, *, seconds: float | None = None) -> SwapFile:
    """Return the file ``name`` of a folder for compare and swap.

    A store without usable conditional writes is refused, or logged once per process and bucket if the user permits it.
    """
    location = Store(remote).location
    if location.filesystem.type_name == "local":
        return readable_file(remote, name, seconds=seconds)
    bucket, path = bucket_of(location), location.inner_path(f"{remote.inside}/{name}").partition("/")[2]
    store, reason = _TRIED.get(bucket) or _tried(location, bucket, path.rpartition("/")[0], remote.address)
    if store is not None:
        return ConditionalFile(store, path, remote.address, seconds=seconds)
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
    return readable_file(remote, name, seconds=seconds)


def _tried(location: Location, bucket: Bucket, folder: str, where: str) -> tuple[ObjectStore | None, str]:
    """Open a bucket and test conditional writes with a temporary file in ``folder``; keep what the store answers.

    Returns:
        The bucket and an empty string; or None and the reason why conditional writes cannot be used.
    """
    store, problem = with_retries(lambda: through_obstore(location, folder), where)
    if store is None:
        return None, problem
    path = f"{folder}/.try-{uuid.uuid4().hex}".lstrip("/")
    problem = _problem(ConditionalFile(store, path, where))
    _TRIED[bucket] = found = (None, problem) if problem else (store, "")
    return found


def _problem(file: ConditionalFile) -> str:
    """Test two allowed and two forbidden writes of a new file, then delete it; return the problem, empty if none."""
    try:
        first = _allowed(file, b"1", None)
        _allowed(file, b"2", first)
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


def _allowed(file: ConditionalFile, content: bytes, over: Seen | None) -> Seen:
    """Write as ``ConditionalFile.write`` does; a write that was repeated because its answer was lost has succeeded."""
    try:
        return file.write(content, over=over)
    except ReplacedError:
        found = file.read()
        if found is None or found.content != content:
            raise
        return found


def _refuses(file: ConditionalFile, over: Seen | None) -> bool:
    try:
        file.write(b"3", over=over)
    except ReplacedError:
        return True
    return False
