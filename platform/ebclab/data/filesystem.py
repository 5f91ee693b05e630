"""Local folders and object stores behind one face: list the files below a place, read one of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from ebclab.errors import DataError


class Place:
    """A folder or file, local or in an object store; small enough to be sent to other processes.

    Args:
        path: A local path, or an address such as s3://bucket/folder or gs://bucket/folder.

    Attributes:
        path: The address, or the absolute local path.

    Raises:
        DataError: The address is of no kind that can be opened.
    """

    def __init__(self, path: str) -> None:
        self.is_local = "://" not in path
        self.path = str(Path(path).expanduser().absolute()) if self.is_local else path.rstrip("/")
        try:
            self.filesystem, self.inside = fs.FileSystem.from_uri(self.path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"data.name: not a place that can be read, got {path!r} ({_first_line(error)}); "
                "write a local path, s3://bucket/folder or gs://bucket/folder"
            ) from error

    def files(self, suffixes: tuple[str, ...]) -> list[str]:
        """Return the paths relative to this place of all files below it with one of ``suffixes``, sorted.

        Hidden files and folders are left out. A place that is itself such a file gives the empty path.

        Raises:
            DataError: There is no such place, or it cannot be read.
        """
        try:
            here = self.filesystem.get_file_info(self.inside)
            if here.type == fs.FileType.NotFound:
                raise DataError(f"data.name: no such folder, got {self.path}; give the folder that holds the files")
            if here.type == fs.FileType.File:
                return [""] if here.path.lower().endswith(suffixes) else []
            found = self.filesystem.get_file_info(fs.FileSelector(self.inside, recursive=True))
        except OSError as error:
            raise self._unreadable(error) from error
        start = len(self.inside.rstrip("/")) + 1
        names = [info.path[start:] for info in found if info.type == fs.FileType.File]
        return sorted(name for name in names if name.lower().endswith(suffixes) and not _is_hidden(name))

    def inner_path(self, name: str) -> str:
        """Return the path of the file ``name`` below this place, as its file system wants it."""
        return f"{self.inside.rstrip('/')}/{name}" if name else self.inside

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
        """Return the bytes of the file ``name`` below this place, or None when there is none.

        Raises:
            DataError: The place cannot be read.
        """
        try:
            size: int | None = self.filesystem.get_file_info(self.inner_path(name)).size
        except OSError as error:
            raise self._unreadable(error, name) from error
        return size

    def _unreadable(self, error: OSError, name: str = "") -> DataError:
        where = f"{self.path}/{name}" if name else self.path
        kind = "permissions" if self.is_local else "the address, the network and your credentials"
        return DataError(f"{where}: cannot be read, got {_first_line(error)}; check {kind}")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
