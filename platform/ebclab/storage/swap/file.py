"""Compare and swap for one file: with a lock on a disk, and not atomically in a store without conditional writes."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from ebclab.storage.lock import held
from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder
from ebclab.storage.retry import with_retries

T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """State of a file when it was read or written."""

    content: bytes
    # entity tag of this content, for conditional writes; None if the content itself is compared
    etag: str | None = None
    generation: str | None = None  # version of this content, in stores that number their writes; else None


class ReplacedError(Exception):
    """Raised if a file is not, or no longer, the one that a write was to replace."""


class SwapFile(Protocol):
    """A small file that is replaced only if it is unchanged since it was read."""

    def read(self) -> Seen | None:
        """Return the file; None if there is none."""

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        """Replace the file ``over``, or create the file if ``over`` is None.

        Raises:
            ReplacedError: The file has been replaced, created or deleted in the meantime.
        """

    def delete(self) -> None:
        """Delete the file, if it exists."""

    def changed(self) -> datetime | None:
        """Return the file's modification time by the store's clock; None if there is no file."""

    def now(self) -> datetime | None:
        """Return the store's time, read from a temporary file; None if that was deleted in the meantime."""


def clock_name() -> str:
    """Return a unique name for a temporary file from which the store's time is read."""
    return f".clock-{uuid.uuid4().hex}"


class PlainFile:
    """A file in a store without conditional writes.

    It is compared before each try of a write, so that a write that is retried while another process takes the file does
    not replace it. Two writers that compare at the same time may both write, and so may a request that is delayed after
    its comparison; the later write then wins.

    Args:
        remote: Its folder.
        name: Its name there.
        seconds: Seconds for which a request is retried; None means ``patience_seconds``.
    """

    def __init__(self, remote: RemoteFolder, name: str, *, seconds: float | None = None) -> None:
        self._remote, self._name, self._seconds = remote, name, seconds
        self._store = Store(remote, seconds=seconds)

    def read(self) -> Seen | None:
        """Return the file; None if there is none."""
        try:
            return Seen(self._store.read(self._name))
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        """Replace the file ``over``, or create the file if ``over`` is None.

        Raises:
            ReplacedError: The file has been replaced, created or deleted in the meantime.
        """

        def require_unchanged() -> None:
            if self.read() != over:
                raise ReplacedError

        Store(self._remote, seconds=self._seconds, may_change=require_unchanged).write(self._name, content)
        return Seen(content)

    def delete(self) -> None:
        """Delete the file, if it exists."""
        self._store.delete(self._name)

    def changed(self) -> datetime | None:
        """Return the file's modification time by the store's clock; None if there is no file."""
        return _changed(self._store, self._name)

    def now(self) -> datetime | None:
        """Return the store's time, read from a temporary file; None if that was deleted in the meantime."""
        name = clock_name()
        self._store.write(name, b"")
        try:
            return _changed(self._store, name)
        finally:
            self._store.delete(name)


def _changed(store: Store, name: str) -> datetime | None:
    stored = store.stored(name)
    return stored.changed if stored is not None else None


class LocalFile:
    """A file on a disk (file:///), which is locked during reads and writes.

    Args:
        path: The file.
        where: Its address, for messages.
        seconds: Seconds for which an operation is retried; None means ``patience_seconds``.
    """

    def __init__(self, path: Path, where: str, *, seconds: float | None = None) -> None:
        self._path, self._where, self._seconds = path, where, seconds

    def read(self) -> Seen | None:
        """Return the file; None if there is none."""
        return self._patiently(self._read)

    def _read(self) -> Seen | None:
        try:
            with held(self._path, fcntl.LOCK_SH, os.O_RDONLY) as descriptor:
                return _seen(descriptor)
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        """Replace the file ``over``, or create the file if ``over`` is None.

        Raises:
            ReplacedError: The file has been replaced, created or deleted in the meantime.
        """

        def write() -> Seen:
            with ExitStack() as stack:
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
        """Delete the file, if it exists."""
        self._patiently(lambda: self._path.unlink(missing_ok=True))

    def changed(self) -> datetime | None:
        """Return the file's modification time; None if there is no file."""
        return self._patiently(lambda: _modified(self._path))

    def now(self) -> datetime | None:
        """Return the disk's time, read from a temporary file; None if that was deleted in the meantime."""
        path = self._path.with_name(clock_name())

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
