"""Compare and swap by a store's own conditional writes (If-None-Match, If-Match), through obstore.

pyarrow, which is used for most other requests, has no conditional writes. Whether a store honors the conditions is
tested once per process, since some S3-compatible stores ignore them. Only what the store has answered is kept: a test
that failed says nothing about the next one.

A store without conditional writes is refused. There, a write that was delayed for longer than a lease lives replaces
the lease of the process that took over meanwhile, whatever was compared before it was sent: the delayed process regains
a folder that another one writes to, and the other one is stopped. ``UNGUARDED`` permits such a store to users who start
nothing twice.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from ebclab.errors import StoreError
from ebclab.storage.filesystem import Bucket, Location, bucket_of, first_line, in_our_errors, through_obstore
from ebclab.storage.object_store import Store
from ebclab.storage.remote import UNGUARDED, RemoteFolder
from ebclab.storage.retry import with_retries
from ebclab.storage.swap.file import ReplacedError, Seen, clock_name

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_log = logging.getLogger("ebclab.storage")
T = TypeVar("T")

_TRIED: dict[Bucket, tuple[ObjectStore | None, str]] = {}
"""What stores have answered to the test: the bucket, or None and why conditional writes cannot be used."""

_NOT_IMPLEMENTED = "status code: 501"


class NotImplementedByStoreError(StoreError):
    """A store says that it does not implement conditional writes."""


class ConditionalFile:
    """A file in a store with conditional writes.

    Args:
        store: The bucket.
        path: Path of the file in it.
        where: Address for messages.
        seconds: Seconds for which a request is retried; None means ``patience_seconds``.
    """

    def __init__(self, store: ObjectStore, path: str, where: str, *, seconds: float | None = None) -> None:
        self._store, self._path, self._where, self._seconds = store, path, where, seconds

    def read(self) -> Seen | None:
        """Return the file; None if there is none."""

        def read() -> Seen:
            found = self._store.get(self._path)
            return Seen(bytes(found.bytes()), found.meta["e_tag"], found.meta["version"])

        try:
            return self._ask(read)
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        """Replace the file ``over``, or create the file if ``over`` is None.

        Raises:
            ReplacedError: The file has been replaced, created or deleted in the meantime.
        """

        def write() -> Seen:
            made = self._store.put(self._path, content, mode=_condition(over))
            return Seen(content, made["e_tag"], made["version"])

        try:
            return self._ask(write)
        except FileNotFoundError as error:
            raise ReplacedError from error

    def delete(self) -> None:
        """Delete the file, if it exists."""
        try:
            self._ask(lambda: self._store.delete(self._path))
        except FileNotFoundError:
            return

    def changed(self) -> datetime | None:
        """Return the file's modification time by the store's clock; None if there is no file."""
        return self._changed(self._path)

    def now(self) -> datetime | None:
        """Return the store's time, read from a temporary file; None if that was deleted in the meantime."""
        path = f"{self._path.rpartition('/')[0]}/{clock_name()}".lstrip("/")
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
            raise NotImplementedByStoreError(str(error)) from error
        raise


def conditional_file(remote: RemoteFolder, name: str, *, seconds: float | None = None) -> ConditionalFile | None:
    """Return the file ``name`` of a folder, for compare and swap by the store.

    Args:
        remote: The folder.
        name: The file's name in it.
        seconds: Seconds for which a request is retried; None means ``patience_seconds``.

    Returns:
        The file; None on a disk, and in a store without usable conditional writes that the user permits, which is
        logged once per process and bucket.
    """
    location = Store(remote).location
    if location.filesystem.type_name == "local":
        return None
    bucket, path = bucket_of(location), location.inner_path(f"{remote.inside}/{name}").partition("/")[2]
    if (found := _TRIED.get(bucket)) is None:
        found = _tried(location, bucket, path.rpartition("/")[0], remote.address)
    store, reason = found
    if store is not None:
        return ConditionalFile(store, path, remote.address, seconds=seconds)
    if os.environ.get(UNGUARDED) != "1":
        raise StoreError(
            f"{remote.address}: no conditional writes here, got {reason}; without them a delayed process may write to "
            f"a folder that another one has taken over: use a store that has them, or set {UNGUARDED}=1 if you start "
            "nothing twice"
        )
    _tell_once(location.path.partition("?")[0], reason)
    return None


@lru_cache
def _tell_once(place: str, reason: str) -> None:
    _log.warning(
        "%s: no conditional writes here, got %s; two launches of one folder may both write, which %s=1 permits",
        place,
        reason,
        UNGUARDED,
    )


def _tried(location: Location, bucket: Bucket, folder: str, where: str) -> tuple[ObjectStore | None, str]:
    """Open a bucket and test conditional writes with a temporary file; keep what the store answers.

    Args:
        location: A place in the bucket.
        bucket: The bucket.
        folder: Path of a folder in the bucket, for the file.
        where: Address for messages.

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
    except NotImplementedByStoreError as error:
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
