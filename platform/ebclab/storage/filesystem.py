"""One interface to local folders and object stores: list files, read one, write one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from ebclab.config.addresses import credentials_problem, expanded, is_address, slashes_problem
from ebclab.errors import DataError

_COPIED_BYTES = 8 << 20  # at once
_OF_THE_STORE = re.compile(r"\bAWS Error\b|google::cloud::Status")
"""Marks an OSError of pyarrow as an object store's."""


class Location:
    """A folder or file, local or in an object store; it can be sent to other processes.

    An address may hold options of the store after a question mark, as pyarrow reads them:
    s3://bucket/folder?endpoint_override=localhost:9000&scheme=http. It holds no credentials: every process finds its
    own.

    Args:
        path: A local path, or an address such as s3://bucket/folder or gs://bucket/folder.
        setting: Name of the setting that holds the path, for messages.

    Attributes:
        path: The address without its options, or the absolute local path.

    Raises:
        DataError: The address is of no kind that can be opened, or holds credentials.
    """

    def __init__(self, path: str, setting: str = "data.name") -> None:
        if problem := credentials_problem(path) or slashes_problem(path):
            raise DataError(f"{setting}: {problem}")
        self._setting = setting
        self.is_local = not is_address(path)
        address = str(expanded(path).absolute()) if self.is_local else path.rstrip("/")
        self.path = address if self.is_local else path.partition("?")[0].rstrip("/")
        try:
            self.filesystem, self.inside = fs.FileSystem.from_uri(_sparing(address))
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(
                f"{setting}: not a place that can be opened, got {path!r} ({_first_line(error)}); "
                "write a local path, s3://bucket/folder or gs://bucket/folder"
            ) from error

    def files(self, suffixes: tuple[str, ...]) -> list[str]:
        """Return the paths that ``sizes`` returns.

        Raises:
            DataError: As ``sizes``.
        """
        return list(self.sizes(suffixes))

    def sizes(self, suffixes: tuple[str, ...]) -> dict[str, int]:
        """Return the sizes in bytes of all files below this place with one of ``suffixes``, by relative path, sorted.

        Hidden files and folders are left out. A place that is itself such a file gives the empty path.

        Raises:
            DataError: There is no such place, it cannot be read, or the name of a file in it is no text.
        """
        try:
            info = self.filesystem.get_file_info(self.inside)
            if info.type == fs.FileType.NotFound:
                kind = "folder" if self.is_local else "bucket or folder"
                raise DataError(
                    f"{self._setting}: no such {kind}, got {self.path}; give the folder that holds the files"
                )
            if info.type == fs.FileType.File:
                return {"": info.size} if info.path.lower().endswith(suffixes) else {}
            below = self.filesystem.get_file_info(fs.FileSelector(self.inside, recursive=True))
        except OSError as error:
            raise self._unreadable(error) from error
        start = len(self.inside.rstrip("/")) + 1
        try:
            found = sorted((info.path[start:], info.size) for info in below if info.type == fs.FileType.File)
        except UnicodeDecodeError as error:
            name = error.object[len(self.inside.rstrip("/").encode()) + 1 :]
            raise DataError(
                f"{self.path}: a file's name is no text in UTF-8, got {bytes(name)!r}; rename it, or its folder"
            ) from error
        return {name: size for name, size in found if name.lower().endswith(suffixes) and not _is_hidden(name)}

    def inner_path(self, name: str) -> str:
        """Return the path of the file ``name`` below this place, as its file system wants it."""
        return f"{self.inside.rstrip('/')}/{name.lstrip('/')}" if name else self.inside

    def read(self, name: str) -> bytes:
        """Return the content of the file ``name`` below this place.

        Raises:
            DataError: It cannot be read.
        """
        try:
            with self.filesystem.open_input_stream(self.inner_path(name), compression=None) as file:
                content: bytes = file.read()
                return content
        except OSError as error:
            raise self._unreadable(error, name) from error

    def size(self, name: str) -> int | None:
        """Return the size in bytes of the file ``name`` below this place, or None when there is none.

        Raises:
            DataError: The place cannot be read.
        """
        try:
            size: int | None = self.filesystem.get_file_info(self.inner_path(name)).size
        except OSError as error:
            raise self._unreadable(error, name) from error
        return size

    def require_empty(self) -> None:
        """Refuse a place in an object store that cannot be reached or is not empty.

        Raises:
            DataError: There is no such bucket, it cannot be listed, or the folder is not empty.
        """
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
        """Copy a local file into the file ``name`` below this place.

        Raises:
            DataError: It cannot be written.
        """
        try:
            with file.open("rb") as source, self.filesystem.open_output_stream(self.inner_path(name)) as target:
                shutil.copyfileobj(source, target, _COPIED_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise self._unwritable(error) from error

    def storage_error(self, error: Exception, name: str) -> DataError | None:
        """Return a DataError when ``error`` is the storage's, and None when the content of the file ``name`` is bad."""
        if isinstance(error, FileNotFoundError | PermissionError) or _OF_THE_STORE.search(str(error)):
            return self._unreadable(error, name)
        return None

    def _unreadable(self, error: Exception, name: str = "") -> DataError:
        where = f"{self.path}/{name}" if name else self.path
        return DataError(f"{where}: cannot be read, got {_first_line(error)}; check {self._what_to_check}")

    def _unwritable(self, error: Exception) -> DataError:
        return DataError(
            f"{self._setting}: cannot write {self.path}, got {_first_line(error)}; check {self._what_to_check}"
        )

    @property
    def _what_to_check(self) -> str:
        return "permissions" if self.is_local else "the address, the network and your credentials"


def _sparing(address: str) -> str:
    """Return ``address`` with the option that uploads a small file to S3 in one request in place of three."""
    if not address.startswith("s3://") or "allow_delayed_open=" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}allow_delayed_open=true"


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
