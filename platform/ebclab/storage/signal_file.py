"""Short notes between the processes of a run, beside its files: a wish to stop, a reason not to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder


class SignalFile(Protocol):
    """A note that may be there or not."""

    def read(self, *, patient: bool = True) -> bytes | None:
        """Return its content, or None without one; a store that does not answer is asked again if ``patient``."""

    def write(self, content: bytes) -> None:
        """Put it there."""

    def clear(self) -> None:
        """Take it away, if it is there."""

    @property
    def pause(self) -> float:
        """Seconds to leave between two looks."""


class LocalSignal:
    """A note as a file.

    Args:
        path: The file.
    """

    pause = 0.0

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, *, patient: bool = True) -> bytes | None:
        """Return its content, or None without one; a store that does not answer is asked again if ``patient``."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Put it there, whole."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_name(f"{self._path.name}.new")
        aside.write_bytes(content)
        aside.replace(self._path)

    def clear(self) -> None:
        """Take it away, if it is there."""
        self._path.unlink(missing_ok=True)


class StoredSignal:
    """A note as an object in a store.

    Args:
        remote: The folder it lies in.
        name: Its name there.
    """

    pause = 3.0

    def __init__(self, remote: RemoteFolder, name: str) -> None:
        self._store, self._looker, self._name = Store(remote), Store(remote, seconds=0), name

    def read(self, *, patient: bool = True) -> bytes | None:
        """Return its content, or None without one; a store that does not answer is asked again if ``patient``."""
        try:
            return (self._store if patient else self._looker).read(self._name)
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Put it there."""
        self._store.write(self._name, content)

    def clear(self) -> None:
        """Take it away, if it is there."""
        self._store.delete(self._name)
