"""Keeps a home up to date while its copy is worked in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ebclab.background import logged, repeating
from ebclab.storage.lease import LIFETIME, Lease, require_not_lost
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import Store, Stored
from ebclab.storage.remote import RemoteFolder

_PAUSE = 5.0  # seconds between looks at what is to be done
_LOOK = 2.0  # seconds between looks at what others have written
_RENEWED = LIFETIME / 4  # seconds between signs of life
_log = logging.getLogger("ebclab.storage")


class Syncer(Protocol):
    """Whoever writes into a run or sweep folder tells it when something may be lost."""

    def push(self) -> None:
        """Return when everything written so far is where it belongs."""

    def push_soon(self) -> None:
        """See to it within some seconds that it gets there."""


class NoSync:
    """For folders that are where they belong already."""

    def push(self) -> None:
        """Nothing."""

    def push_soon(self) -> None:
        """Nothing."""


class StoreSyncer:
    """Uploads at once when told to, and in a thread of its own otherwise.

    Args:
        mirror: Of the folder.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._wanted = threading.Event()

    def push(self) -> None:
        """Upload what has changed.

        Raises:
            RunError: The store refuses, or has not answered for long.
        """
        self._wanted.clear()
        require_not_lost(self._mirror.remote)
        self._mirror.push()

    def push_soon(self) -> None:
        """Upload within some seconds; what goes wrong then is tried again."""
        self._wanted.set()

    def push_if_wanted(self) -> None:
        """Upload when somebody has asked for it."""
        if not self._wanted.is_set():
            return
        try:
            self.push()
        except BaseException:
            self._wanted.set()
            raise


@contextmanager
def synced(
    remote: RemoteFolder | None, kinds: tuple[str, ...] = (), *, without: tuple[str, ...] = ()
) -> Iterator[Syncer]:
    """Pull ``remote``, then yield what keeps it up to date, also at the end, whatever that is.

    Args:
        remote: The folder; None for one on a disk, where nothing is to be done.
        kinds: Kinds of the checkpoints to pull. Those that are not pulled stay in the store, whatever happens here.
        without: Names of folders within that other processes look after.

    Raises:
        RunError: The store refuses, or has not answered for long.
    """
    if remote is None:
        yield NoSync()
        return
    mirror = Mirror(remote, without=without)
    mirror.pull(kinds)
    syncer = StoreSyncer(mirror)
    with repeating(syncer.push_if_wanted, _PAUSE):
        try:
            yield syncer
        finally:
            syncer.push()


@contextmanager
def leased(remote: RemoteFolder | None, busy: str) -> Iterator[None]:
    """Hold ``remote`` for this process; a folder on a disk is held otherwise.

    Raises:
        RunError: Another process holds it, or the store refuses.
    """
    if remote is None:
        yield
        return
    lease = Lease(remote, busy)
    lease.take()
    try:
        with repeating(lease.renew, _RENEWED):
            yield
    finally:
        with logged():
            lease.give_back()


@contextmanager
def downloading(remote: RemoteFolder | None, name: str) -> Iterator[None]:
    """Bring the copy of the file ``name`` up to date every few seconds, and the whole copy at the end.

    Args:
        remote: The folder, in which others write; None for one on a disk.
        name: The file.
    """
    if remote is None:
        yield
        return
    store, seen = Store(remote, seconds=0), [Stored(-1, None)]

    def look() -> None:
        found = store.stored(name)
        if found is not None and found != seen[0]:
            store.download(name, remote.cache / name)
            seen[0] = found

    with repeating(look, _LOOK):
        yield
    Mirror(remote).pull()
