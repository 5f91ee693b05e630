"""A folder of runs or of sweeps, on a disk or in an object store, as far as a list needs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ebclab.errors import RunError, UserError
from ebclab.storage.home import Home, home_at
from ebclab.storage.lease import held_by
from ebclab.storage.mirror import Mirror
from ebclab.storage.store import Stored
from ebclab.training.lock import is_running


@dataclass(frozen=True)
class Shelf:
    """Runs or sweeps beside each other.

    Attributes:
        path: Their folder, or the copy of it on this machine.
        home: Where it lives, when that is a store.
        there: What the store holds below it.
    """

    path: Path
    home: Home | None = None
    there: dict[str, Stored] | None = None

    @property
    def address(self) -> str:
        """Where it is, as the user names it."""
        return self.home.address if self.home else str(self.path)

    def num_bytes(self, name: str) -> int | None:
        """Return the size of one of them in the store; None on a disk."""
        if self.there is None:
            return None
        return sum(info.num_bytes for file, info in self.there.items() if file.startswith(f"{name}/"))

    def is_running(self, name: str) -> bool:
        """Return whether a process works in one of them."""
        return bool(held_by(self.home / name)) if self.home else is_running(self.path / name)


def shelf_at(place: str | None, usual: str, option: str) -> Shelf:
    """Return the folder that the user named, or the usual one; one in a store is brought here but for checkpoints.

    Raises:
        UserError: A named folder does not exist, or the store cannot be read.
    """
    home = home_at(place) if place else None
    if home is None:
        return Shelf(folder_given(place, usual, option))
    mirror = Mirror(home)
    mirror.pull()
    return Shelf(home.copy, home, mirror.store.names())


def folder_given(place: str | None, usual: str, option: str) -> Path:
    """Return the folder on this disk that the user named, or the usual one.

    Raises:
        UserError: A named one does not exist, or is no folder on a disk.
    """
    if place is None:
        return Path(usual)
    if home_at(place) is not None:
        raise UserError(
            f"{option}: only folders on a disk can be cleaned, got {place}; "
            "delete in a store with its own tool, such as `aws s3 rm --recursive`"
        )
    if not Path(place).is_dir():
        raise RunError(f"{option}: there is no such folder, got {place}")
    return Path(place)
