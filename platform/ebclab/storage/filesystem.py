"""A common interface to local folders and object stores: list, read and write files.

pyarrow has no conditional writes, and a file that it deletes in S3 leaves an empty object for its folder. obstore is
used for these two operations, with pyarrow's settings, after a test that both reach the same bucket.

pyarrow is imported when a place is opened: most commands open none, and start in half the time without it.

Requests are retried with exponential backoff while a store does not respond.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import logging
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import parse_qs

from ebclab.config.addresses import (
    absolute,
    as_uri,
    credentials_problem,
    form_problem,
    host_problem,
    is_address,
    path_problem,
)
from ebclab.errors import DataError, StoreError, UserError
from ebclab.storage import atomic

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ObjectStore
    from pyarrow import fs


PATIENCE = "EBCLAB_STORAGE_PATIENCE"
"""Environment variable with the number of seconds for which a request is retried; default: 600."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds
_LASTING = re.compile(
    r"ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN|INVALID_CLIENT_TOKEN"
    r"|HTTP response code 40[13]|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED|bucket does not exist",
    re.IGNORECASE,
)
"""Permanent errors of stores, which are not retried."""

_OF_A_DISK = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "check its permissions"),
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL), "check the path"),
}
"""Permanent errors of this machine's disks, which are not retried either, and their remedies."""

_log = logging.getLogger("ebclab.storage")
T = TypeVar("T")


def patience_seconds() -> float:
    """Return the number of seconds for which a request is retried."""
    text = os.environ.get(PATIENCE, "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UserError(f"{PATIENCE}: not a number of seconds, got {text!r}; write 600, or unset it")
    return seconds


def is_refusal(error: Exception) -> bool:
    """Return whether a store has refused a request permanently, e.g. for lack of permissions."""
    return _LASTING.search(" ".join(str(error).split())) is not None


def with_retries(work: Callable[[], T], where: str, *, seconds: float | None = None) -> T:
    """Return the result of ``work``, which is retried for ``seconds`` (None: ``patience_seconds``) without an answer.

    A FileNotFoundError is raised as it is.

    Raises:
        StoreError: The store refuses access or does not respond within that time, or a local disk cannot be written.
    """
    import pyarrow as pa

    allowed = patience_seconds() if seconds is None else seconds
    started, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            return work()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            if is_refusal(error):
                raise StoreError(
                    f"{where}: the store refuses, got {reason}; check credentials and permissions"
                ) from error
            if isinstance(error, OSError) and error.errno in _OF_A_DISK:
                raise StoreError(
                    f"{where}: a disk cannot be written to, got {reason}; {_OF_A_DISK[error.errno]}"
                ) from error
            waited = time.monotonic() - started
            if waited + pause > allowed:
                raise StoreError(
                    f"{where}: the store has not answered for {waited:.0f} s, got {reason}; "
                    f"the same command resumes from there once it does ({PATIENCE} allows {allowed:g} s)"
                ) from error
            _log.warning("%s: the store does not answer, trying again in %.1f s (%s)", where, pause, reason)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


COPIED_BYTES = 8 << 20  # buffer size of a copy
_UNSENT_COPIES = 16  # that a stream may hold before it waits for the store
_LINKS_FOLLOWED = 32  # nested symbolic links that the system follows: 32 on macOS, 40 on Linux
_OF_THE_STORE = re.compile(r"\bAWS Error\b|google::cloud::Status")
"""Matches the message of an OSError that pyarrow raises for an object store."""

_OWN_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Environment variables with credentials that obstore finds by itself; unlike boto3, it does not read profiles."""

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class Location:
    """A folder or file, local or in an object store; can be sent to other processes.

    An address may contain options of the store after a question mark, as pyarrow reads them:
    s3://bucket/folder?endpoint_override=localhost:9000&scheme=http. Before it, names are written literally, in any
    script; escapes such as %20 are decoded. It contains no credentials: every process finds its own.

    Args:
        path: A local path, or an address such as s3://bucket/folder or gs://bucket/folder.
        setting: Name of the setting that contains the path, for messages.

    Attributes:
        path: The address without its options, or the absolute local path.
        address: The same with its options.
    """

    def __init__(self, path: str, setting: str = "data.name") -> None:
        import pyarrow as pa
        from pyarrow import fs

        problem = form_problem(path) or credentials_problem(path) or path_problem(path) or host_problem(path)
        if problem:
            raise DataError(f"{setting}: {problem}")
        self._setting = setting
        self.is_local = not is_address(path)
        self.address = address = str(absolute(path)) if self.is_local else path.rstrip("/")
        self.path = address if self.is_local else path.partition("?")[0].rstrip("/")
        try:
            self.filesystem, self.inside = fs.FileSystem.from_uri(
                address if self.is_local else as_uri(_sparing(address))
            )
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(
                f"{setting}: not a place that can be opened, got {path!r} ({first_line(error)}); "
                "write a local path, s3://bucket/folder or gs://bucket/folder"
            ) from error

    def files(self, suffixes: tuple[str, ...]) -> list[str]:
        """Return the relative paths of all files with one of ``suffixes``; see ``sizes``."""
        return list(self.sizes(suffixes))

    def sizes(self, suffixes: tuple[str, ...], below: str = "") -> dict[str, int]:
        """Return the sizes in bytes of all files with one of ``suffixes``, by their path below this place, sorted.

        Hidden files and folders are skipped. A place that is itself such a file is returned as the empty path. With
        ``below``, only the files in this folder are listed.
        """
        from pyarrow import fs

        info = self._found(self.inner_path(below))
        if info.type == fs.FileType.NotFound:
            kind, path = "folder" if self.is_local else "bucket or folder", f"{self.path}/{below}".rstrip("/")
            raise DataError(f"{self._setting}: no such {kind}, got {path}; give the folder that holds the files")
        if info.type == fs.FileType.File:
            return {below: info.size} if info.path.lower().endswith(suffixes) else {}
        infos = self._found(fs.FileSelector(self.inner_path(below), recursive=True))
        start = len(self.inside.rstrip("/")) + 1
        try:
            found = {info.path[start:]: size for info in infos if (size := info.size) is not None}  # none for folders
        except UnicodeDecodeError as error:
            name = error.object[len(self.inside.rstrip("/").encode()) + 1 :]
            raise DataError(
                f"{self.path}: a file's name is not UTF-8, got {bytes(name)!r}; rename it, or its folder"
            ) from error
        wanted = sorted(name for name in found if name.lower().endswith(suffixes) and not _is_hidden(name))
        if self.is_local and (deep := next((name for name in wanted if self._is_deep_by_links(name)), None)):
            raise DataError(
                f"{self.path}: a link in it leads to a folder above itself, so that its files are found again and "
                f"again, got {_LINKS_FOLLOWED} links within each other in {deep:.80}...; remove the link"
            )
        return {name: found[name] for name in wanted}

    def num_dead(self) -> int:
        """Return how many entries of a local folder are neither files nor folders, such as links to nothing.

        ``sizes`` leaves them out; what lies behind links to folders is not looked at.
        """
        count, folders = 0, [self.inside] if self.is_local else []
        while folders:
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file() and not entry.is_dir():
                        count += 1
        return count

    def _is_deep_by_links(self, name: str) -> bool:
        """Return whether a path contains as many symbolic links as the system follows, i.e. is part of a loop."""
        if name.count("/") < _LINKS_FOLLOWED:
            return False
        return sum((Path(self.inside) / folder).is_symlink() for folder in Path(name).parents) >= _LINKS_FOLLOWED

    def folders(self, below: str = "") -> list[str]:
        """Return the names of the direct subfolders of this place, or of the folder ``below`` it; empty if missing."""
        from pyarrow import fs

        try:
            inside = fs.FileSelector(self.inner_path(below), allow_not_found=True)
            return sorted(i.base_name for i in self.filesystem.get_file_info(inside) if i.type == fs.FileType.Directory)
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error, below) from error

    def has(self, name: str) -> bool:
        """Return whether there is a file or folder ``name`` below this place."""
        from pyarrow import fs

        return bool(self._found(self.inner_path(name), name).type != fs.FileType.NotFound)

    def inner_path(self, name: str) -> str:
        """Return the path of the file ``name`` below this place, in the form that its file system expects."""
        return f"{self.inside.rstrip('/')}/{name.lstrip('/')}" if name else self.inside

    def read(self, name: str) -> bytes:
        """Return the content of the file ``name`` below this place."""
        try:
            with self.filesystem.open_input_stream(self.inner_path(name), compression=None) as file:
                content: bytes = file.read()
                return content
        except OSError as error:
            raise self._unreadable(error, name) from error

    def size(self, name: str) -> int | None:
        """Return the size in bytes of the file ``name`` below this place, or None if there is none."""
        size: int | None = self._found(self.inner_path(name), name).size
        return size

    def _found(self, where: str | fs.FileSelector, name: str = "") -> Any:
        """Return what pyarrow tells of a path, or of every path of a selector."""
        try:
            return self.filesystem.get_file_info(where)
        except OSError as error:
            raise self._unreadable(error, name) from error

    def require_empty(self) -> None:
        """Refuse a place in an object store that cannot be reached or is not empty."""
        from pyarrow import fs

        try:
            bucket = self.filesystem.get_file_info(self.inside.partition("/")[0])
            content = self.filesystem.get_file_info(fs.FileSelector(self.inside, allow_not_found=True))
        except OSError as error:
            raise self._unwritable(error) from error
        if bucket.type == fs.FileType.NotFound:
            raise DataError(f"{self._setting}: no such bucket, got {self.path}; make it first")
        if content:
            raise DataError(
                f"{self._setting}: there is something already, got {self.path}; give a folder that is new or empty"
            )

    def upload(self, file: Path, name: str) -> None:
        """Copy a local file into the file ``name`` below this place."""
        import pyarrow as pa

        try:
            with file.open("rb") as source, whole_or_not(self.filesystem, self.inner_path(name)) as target:
                copied(source, target)
        except (OSError, pa.ArrowException) as error:
            raise self._unwritable(error) from error

    def storage_error(self, error: Exception, name: str) -> DataError | None:
        """Return a DataError if ``error`` was raised by the storage, or None if the content of ``name`` is invalid."""
        if isinstance(error, FileNotFoundError | PermissionError) or _OF_THE_STORE.search(str(error)):
            return self._unreadable(error, name)
        return None

    def _unreadable(self, error: Exception, name: str = "") -> DataError:
        where = f"{self.path}/{name}" if name else self.path
        return DataError(f"{where}: cannot be read, got {first_line(error)}; check {self._what_to_check}")

    def _unwritable(self, error: Exception) -> DataError:
        return DataError(
            f"{self._setting}: cannot write {self.path}, got {first_line(error)}; check {self._what_to_check}"
        )

    @property
    def _what_to_check(self) -> str:
        return "permissions" if self.is_local else "the address, the network and your credentials"


def copied(source: BinaryIO, target: BinaryIO | pa.NativeFile) -> None:
    """Copy a file into a stream, which holds some parts at most: pyarrow queues all that a store has not taken."""
    copies = 0
    while block := source.read(COPIED_BYTES):
        target.write(block)
        copies += 1
        if copies % _UNSENT_COPIES == 0:
            target.flush()  # waits for the parts that are on their way


@contextmanager
def whole_or_not(filesystem: fs.FileSystem, path: str) -> Iterator[BinaryIO | pa.NativeFile]:
    """Yield a file to write, which is at ``path`` when the block has ended, and not there in part if it is left.

    A stream into a store publishes what it has when it is closed or dropped, and pyarrow cannot abort one: if it is
    left, it is kept, unreferenced, until the process ends. After an error of its own, which has no number as those of
    local files have, it is closed, or each retry would keep 10 MiB; that publishes a part only if the store answers
    again just then, before the retry. On a disk the folder is made first.
    """
    import pyarrow as pa
    from pyarrow import fs

    if isinstance(filesystem, fs.LocalFileSystem):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic.written_aside(Path(path)) as file:
            yield file
        return
    stream = filesystem.open_output_stream(path)
    try:
        yield stream
    except BaseException as error:
        if isinstance(error, OSError | pa.ArrowException) and getattr(error, "errno", None) is None:
            with suppress(OSError, pa.ArrowException):
                stream.close()
        else:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
        raise
    stream.close()


def _sparing(address: str) -> str:
    """Return ``address`` with the option that uploads a small file to S3 in one request instead of three."""
    if not address.startswith("s3://") or "allow_delayed_open=" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}allow_delayed_open=true"


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


@dataclass(frozen=True)
class Bucket:
    """The parameters with which obstore reaches a bucket that pyarrow has opened."""

    kind: str  # "s3" or "gcs", as in pyarrow
    name: str  # name of the bucket
    settings: tuple[tuple[str, str], ...] = field(repr=False)  # settings of obstore by name
    endpoint: str = ""  # URL of a store other than Amazon's or Google's; empty for theirs


_REACHED: dict[Bucket, tuple[ObjectStore | None, str, float]] = {}
"""Results of ``through_obstore`` for the buckets that this process has tested, and until when each is valid."""

_ASKED_AGAIN = 60.0  # seconds after which credentials that obstore did not find are looked for again


def bucket_of(location: Location) -> Bucket:
    """Return the parameters with which obstore reaches the bucket of a folder, by the rules of pyarrow."""
    kind, name = location.filesystem.type_name, location.inside.partition("/")[0]
    options = {option: values[0] for option, values in parse_qs(location.address.partition("?")[2]).items()}
    endpoint = options.get("endpoint_override", "")
    if kind == "s3" and not endpoint:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    settings = {}
    if kind == "s3":
        settings["region"] = location.filesystem.region
        settings |= {key.lower(): os.environ[key] for key in _KEYS if os.environ.get(key)}
    elif location.address.startswith("gs://anonymous@"):
        settings["skip_signature"] = "true"
    return Bucket(kind, name, tuple(settings.items()), endpoint)


def through_obstore(location: Location, folder: str) -> tuple[ObjectStore | None, str]:
    """Return the bucket of a place opened through obstore; tested once per process with a temporary file.

    Only an answer of the store is kept. Credentials that were not found are looked for again after a minute.

    Returns:
        The bucket and an empty string; or None and the reason why obstore cannot be used, e.g. it finds no
        credentials, or pyarrow does not see the file that it wrote into ``folder``.

    Raises:
        OSError: The store does not answer.
    """
    bucket = bucket_of(location)
    store, reason, until = _REACHED.get(bucket, (None, "", -math.inf))
    if time.monotonic() >= until:
        store, reason, until = _REACHED[bucket] = _reached(bucket, location, folder)
    return store, reason


def _reached(bucket: Bucket, location: Location, folder: str) -> tuple[ObjectStore | None, str, float]:
    """Test whether obstore reaches a bucket; return what ``through_obstore`` does, and until when that is valid."""
    own = f"{folder}/.try-{uuid.uuid4().hex}".lstrip("/")
    try:
        store = _open(bucket)
        in_our_errors(lambda: store.put(own, b""))
        try:
            is_seen = location.filesystem.get_file_info(f"{bucket.name}/{own}").is_file
        finally:
            with suppress(OSError):
                in_our_errors(lambda: store.delete(own))
    except FileNotFoundError as error:
        raise OSError(f"bucket does not exist: {bucket.name}") from error
    except Exception as error:  # from obstore or boto3 about settings and profiles, or from the store
        if own in str(error) and not is_refusal(error):  # the request of the file failed, not one for credentials
            raise OSError(first_line(error)) from error
        return None, first_line(error), time.monotonic() + _ASKED_AGAIN
    return (store, "", math.inf) if is_seen else (None, "another bucket than that of the run", math.inf)


def in_our_errors(request: Callable[[], T]) -> T:
    """Perform a request through obstore; its errors are converted to those that ``with_retries`` handles."""
    from obstore import exceptions

    try:
        return request()
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise OSError(f"PERMISSION_DENIED: {first_line(error)}") from error
    except exceptions.BaseError as error:
        raise OSError(first_line(error)) from error


def _open(bucket: Bucket) -> ObjectStore:
    """Open a bucket, with a request timeout of 10 s and without retries."""
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
    """Return a provider of credentials that also reads AWS profiles; None to use obstore's own credential lookup."""
    if any(os.environ.get(name) for name in _OWN_CREDENTIALS) or importlib.util.find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    return Boto3CredentialProvider()
