"""Signal files: short messages between the processes of a run, such as a request to stop or a reason to give up."""

from __future__ import annotations

from pathlib import Path

from ebclab.errors import RunError
from ebclab.regular_file import read_regular
from ebclab.storage import atomic
from ebclab.storage.object_store import RemoteFolder, Store

_LARGEST = 1 << 20  # maximum size of a message in bytes


class LocalSignal:
    """A signal that is a file on a disk."""

    pause = 0.0
    """Seconds to wait between two reads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, *, patient: bool = True) -> bytes | None:
        """Return its content, or None if there is none; ``patient`` retries while a store does not respond."""
        try:
            return read_regular(self._path, _LARGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{self._path}: cannot be read, got {error.strerror or error}; delete it") from error

    def write(self, content: bytes) -> None:
        """Create or replace the signal; no reader sees partial content."""
        atomic.make_folder(self._path.parent)
        atomic.write_bytes(self._path, content)

    def clear(self) -> None:
        """Remove the signal, if it exists."""
        if self._path.exists():
            self._path.unlink()
            atomic.sync_path(self._path.parent)  # or a request of before a power failure would stop the next launch


class StoredSignal:
    """A signal that is an object in a store."""

    pause = 3.0

    def __init__(self, remote: RemoteFolder, name: str) -> None:
        self._store, self._impatient, self._name = Store(remote), Store(remote, seconds=0), name

    def read(self, *, patient: bool = True) -> bytes | None:
        """Return its content, or None if there is none; ``patient`` retries while a store does not respond."""
        try:
            return (self._store if patient else self._impatient).read(self._name)
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Create or replace the signal."""
        self._store.write(self._name, content)

    def clear(self) -> None:
        """Remove the signal, if it exists."""
        self._store.delete(self._name)


SignalFile = LocalSignal | StoredSignal
"""A short message stored in a file, which may be absent."""
