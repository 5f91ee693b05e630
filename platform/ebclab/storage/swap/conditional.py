"""Compare and swap by a store's own conditional writes (If-None-Match, If-Match), through obstore.

pyarrow, through which everything else goes, has no conditional writes. Whether a store keeps the conditions is tried
once a process: some clones of S3 ignore them.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

from ebclab.errors import StoreError
from ebclab.storage.filesystem import Location
from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder
from ebclab.storage.retry import with_retries
from ebclab.storage.swap.file import ReplacedError, Seen, clock_name

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_OWN_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables with credentials that obstore finds by itself; it does not read profiles, which boto3 does."""

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

_log = logging.getLogger("ebclab.storage")
T = TypeVar("T")


@dataclass(frozen=True)
class Bucket:
    """What obstore needs to reach the bucket that pyarrow has open.

    Attributes:
        kind: "s3" or "gcs", as pyarrow says.
        name: The bucket.
        settings: Settings of obstore by name.
        endpoint: URL of a store other than Amazon's or Google's; empty for theirs.
    """

    kind: str
    name: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)
    endpoint: str = ""


_TRIED: dict[Bucket, ObjectStore | None] = {}
"""Buckets of which this process knows; None where conditional writes cannot be used."""


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
        """Return the file; None when there is none."""

        def read() -> Seen:
            found = self._store.get(self._path)
            return Seen(bytes(found.bytes()), found.meta["e_tag"], found.meta["version"])

        try:
            return self._ask(read)
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, over: Seen | None) -> Seen:
        """Replace the file ``over``, or make one where there was none.

        Raises:
            ReplacedError: There is another one by now, or none.
        """

        def write() -> Seen:
            made = self._store.put(self._path, content, mode=_condition(over))
            return Seen(content, made["e_tag"], made["version"])

        try:
            return self._ask(write)
        except FileNotFoundError as error:
            raise ReplacedError from error

    def delete(self) -> None:
        """Delete the file, if there is one."""
        try:
            self._ask(lambda: self._store.delete(self._path))
        except FileNotFoundError:
            return

    def changed(self) -> datetime | None:
        """Return when the file was written, by the store's clock; None when there is none."""
        return self._changed(self._path)

    def now(self) -> datetime | None:
        """Return the store's time, from a file that only this call knows; None when it was deleted meanwhile."""
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
    """Return the condition of a write as obstore wants it."""
    if over is None:
        return "create"
    return {name: value for name, value in (("e_tag", over.etag), ("version", over.generation)) if value is not None}


def _in_our_errors(request: Callable[[], T]) -> T:
    """Do a request of obstore; its errors become those that ``with_retries`` knows."""
    from obstore import exceptions

    try:
        return request()
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise ReplacedError from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise OSError(f"PERMISSION_DENIED: {_first_line(error)}") from error
    except exceptions.BaseError as error:
        raise OSError(_first_line(error)) from error


def conditional_file(remote: RemoteFolder, name: str, *, seconds: float | None = None) -> ConditionalFile | None:
    """Return the file ``name`` of a folder, for compare and swap by the store.

    Args:
        remote: The folder.
        name: The file's name in it.
        seconds: Seconds for which a request is retried; None means ``patience_seconds``.

    Returns:
        The file; None on a disk, and in a store that takes no conditional writes, which is then logged, once a process
        and bucket.
    """
    store = Store(remote)
    location = store.location
    if location.filesystem.type_name == "local":
        return None
    bucket, path = bucket_of(remote, location), location.inner_path(f"{remote.inside}/{name}").partition("/")[2]
    if bucket not in _TRIED:
        own = f".try-{uuid.uuid4().hex}"
        own_path = f"{path.rpartition('/')[0]}/{own}".lstrip("/")
        _TRIED[bucket], reason = _tried(bucket, own_path, lambda: store.stored(own) is not None)
        if reason:
            _log.warning(
                "%s: no conditional writes here, got %s; two launches in the same instant may both begin, and the "
                "earlier one is then stopped at its next upload",
                location.path.partition("?")[0],
                reason,
            )
    opened = _TRIED[bucket]
    return None if opened is None else ConditionalFile(opened, path, remote.address, seconds=seconds)


def _tried(bucket: Bucket, path: str, is_seen: Callable[[], bool]) -> tuple[ObjectStore | None, str]:
    """Open a bucket and try conditional writes with a file of its own.

    Args:
        bucket: The bucket.
        path: Path of the file in it.
        is_seen: Returns whether pyarrow sees the file, as it must in the same bucket.

    Returns:
        The bucket, and nothing; or None, and why conditional writes cannot be used.
    """
    try:
        store = _open(bucket)
    except Exception as error:  # of obstore's or boto3's, about settings and profiles
        return None, _first_line(error)
    problem = _problem(ConditionalFile(store, path, bucket.name, seconds=0), is_seen)
    return (None, problem) if problem else (store, "")


def _problem(file: ConditionalFile, is_seen: Callable[[], bool]) -> str:
    """Write a new file twice as it may be and twice as it must not be, and delete it; return what went otherwise."""
    try:
        first = file.write(b"1", over=None)
    except (ReplacedError, StoreError) as error:
        return _first_line(error.__cause__ or error)
    try:
        file.write(b"2", over=first)
        for header, over in (("If-None-Match", None), ("If-Match", first)):
            if not _refuses(file, over):
                return f"a store that does not heed {header}"
        return "" if is_seen() else "another bucket than that of the run"
    except ReplacedError:
        return "a store that refuses a write whose condition holds"
    except StoreError as error:
        return _first_line(error.__cause__ or error)
    finally:
        with suppress(StoreError):
            file.delete()


def _refuses(file: ConditionalFile, over: Seen | None) -> bool:
    try:
        file.write(b"3", over=over)
    except ReplacedError:
        return True
    return False


def bucket_of(remote: RemoteFolder, location: Location) -> Bucket:
    """Return what obstore needs to reach the bucket in which a folder lies, by the rules of pyarrow.

    Args:
        remote: The folder.
        location: Its root, as pyarrow has it open.
    """
    kind, name = location.filesystem.type_name, location.inside.partition("/")[0]
    options = {option: values[-1] for option, values in parse_qs(remote.root.partition("?")[2]).items()}
    endpoint = options.get("endpoint_override", "")
    if kind == "s3" and not endpoint:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    settings = {}
    if kind == "s3":
        settings["region"] = location.filesystem.region
        settings |= {key.lower(): os.environ[key] for key in _KEYS if os.environ.get(key)}
    elif remote.root.startswith("gs://anonymous@"):
        settings["skip_signature"] = "true"
    return Bucket(kind, name, tuple(settings.items()), endpoint)


def _open(bucket: Bucket) -> ObjectStore:
    """Open a bucket; a request waits 10 s for its answer and is not repeated here.

    Raises:
        Exception: obstore cannot be used with such a store, or boto3 finds no credentials.
    """
    from obstore.store import GCSStore, S3Store

    client: Any = {"allow_http": bucket.endpoint.startswith("http://"), "connect_timeout": "5s", "timeout": "10s"}
    once: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=10)}
    settings: Any = dict(bucket.settings)
    if bucket.kind == "s3":
        own = {"endpoint": bucket.endpoint, "aws_endpoint_url_s3": bucket.endpoint} if bucket.endpoint else {}
        settings |= {"disable_bulk_delete": True} | own
        provider: Any = _profiles()
        return S3Store(
            bucket.name, config=settings, client_options=client, retry_config=once, credential_provider=provider
        )
    if bucket.kind == "gcs":
        settings |= {"base_url": bucket.endpoint} if bucket.endpoint else {}
        return GCSStore(bucket.name, config=settings, client_options=client, retry_config=once)
    raise ValueError(f"a store of the kind {bucket.kind!r}")


def _profiles() -> Any:
    """Return what finds credentials as Amazon's tools do, profiles among them; None where obstore finds them itself."""
    if any(os.environ.get(name) for name in _OWN_CREDENTIALS) or importlib.util.find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    return Boto3CredentialProvider()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
