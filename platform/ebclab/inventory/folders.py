"""Collections of runs or sweeps, on a disk or in an object store, as the list of runs reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebclab.errors import RunError, UserError
from ebclab.storage.lease import NAME as LEASE
from ebclab.storage.lease import held_by
from ebclab.storage.lock import is_running
from ebclab.storage.mirror import CHECKPOINTS, MANIFEST, at_once, bring, whole_checkpoints
from ebclab.storage.object_store import Store, Stored
from ebclab.storage.reading import json_value
from ebclab.storage.remote import RemoteFolder, remote_at

_LISTED = ("config.yaml", "sweep.yaml", "trials.jsonl", "result.json")
"""Files of runs and sweeps that the list reads."""


@dataclass(frozen=True)
class RunCollection:
    """A folder of runs or of sweeps.

    Attributes:
        path: The folder, or this machine's copy of it.
        remote: The folder in the store; None on a disk.
        there: Files in the store by name, relative to the folder; None on a disk.
    """

    path: Path
    remote: RemoteFolder | None = None
    there: dict[str, Stored] | None = None

    @property
    def address(self) -> str:
        """Path or address of the folder, as the user writes it."""
        return self.remote.address if self.remote else str(self.path)

    def num_bytes(self, name: str) -> int | None:
        """Return the size of a run or sweep in the store; None on a disk."""
        if self.there is None:
            return None
        return sum(info.num_bytes for file, info in self.there.items() if file.startswith(f"{name}/"))

    def changed(self, name: str, file: str) -> float | None:
        """Return when a file of a run or sweep was written, in seconds since 1970; None when there is no such file."""
        if self.there is None:
            path = self.path / name / file
            return path.stat().st_mtime if path.exists() else None
        stored = self.there.get(f"{name}/{file}")
        return stored.changed.timestamp() if stored is not None and stored.changed is not None else None

    def newest_manifest(self, name: str) -> dict[str, Any] | None:
        """Return the manifest of the newest whole checkpoint of a run in the store; None when there is none."""
        if self.remote is None or self.there is None:
            return None
        own = [file for file in self.there if file.startswith(f"{name}/{CHECKPOINTS}/")]
        for folder in whole_checkpoints(own, "last"):
            try:
                manifest = json_value(Store(self.remote / name / CHECKPOINTS / folder).read(MANIFEST))
            except FileNotFoundError:
                continue  # replaced since it was listed
            except ValueError as error:
                raise RunError(f"{self.address}/{name}: {folder} is damaged, got {error}") from error
            return manifest if isinstance(manifest, dict) else {}
        return None

    def is_running(self, name: str) -> bool:
        """Return whether a process works in a run or sweep."""
        if self.remote is None or self.there is None:
            return is_running(self.path / name)
        sign = self.there.get(f"{name}/{LEASE}")
        return sign is not None and bool(held_by(self.remote / name, sign))


def collection_at(place: str | None, usual: str, option: str) -> RunCollection:
    """Return the collection that the user named, or the default one; from a store, the files of the list are copied.

    Args:
        place: What the user wrote: a folder or an address; None when nothing.
        usual: The default folder.
        option: The option of the command line, for messages.

    Raises:
        UserError: The named folder does not exist, or the store cannot be read.
    """
    remote = remote_at(place) if place else None
    if remote is None:
        return RunCollection(collection_given(place, usual, option))
    remote = remote.of("reader")
    store = Store(remote)
    there = store.names()
    wanted = [name for name in there if name.count("/") == 1 and name.endswith(tuple(f"/{file}" for file in _LISTED))]
    for path in (path for file in _LISTED for path in remote.cache.glob(f"*/{file}")):  # of an earlier list
        path.unlink()
    at_once(lambda name: bring(store, name, remote.cache / name), wanted)
    return RunCollection(remote.cache, remote, there)


def collection_given(place: str | None, usual: str, option: str) -> Path:
    """Return the folder on this disk that the user named, or the default one.

    Raises:
        UserError: The named folder does not exist, or is in a store.
    """
    if place is None:
        return Path(usual)
    if remote_at(place) is not None:
        raise UserError(
            f"{option}: only folders on a disk can be cleaned, got {place}; "
            "delete in a store with its own tool, such as `aws s3 rm --recursive`"
        )
    if not Path(place).is_dir():
        raise RunError(f"{option}: there is no such folder, got {place}")
    return Path(place)
