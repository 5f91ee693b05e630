"""Uploads what a process writes into a local copy, and downloads what other processes write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ebclab.background import logged, repeating
from ebclab.errors import InterruptedRunError
from ebclab.storage.lease import FencingToken
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import Store, Stored
from ebclab.storage.remote import RemoteFolder

_PUSH_SECONDS = 5.0  # between looks at whether a push is due
_LOOK_SECONDS = 2.0  # between looks at what other processes have written
_LAST_SECONDS = 5.0  # for the last push of a process that was asked to stop

_log = logging.getLogger("ebclab.storage")


class Syncer(Protocol):
    """Brings what a process has written to where the run or sweep lives."""

    @property
    def token(self) -> FencingToken | None:
        """The token under which the folder is held; None on a disk."""

    def push(self) -> None:
        """Return when everything written so far is in the store."""

    def push_soon(self) -> None:
        """Have everything written so far uploaded within some seconds."""

    def hand_over(self) -> None:
        """Push for the last time: from here on, other processes write into the store."""


class NoSync:
    """The syncer of a folder on a disk: nothing is to be uploaded."""

    token = None

    def push(self) -> None:
        """Do nothing."""

    def push_soon(self) -> None:
        """Do nothing."""

    def hand_over(self) -> None:
        """Do nothing."""


class StoreSyncer:
    """Uploads at once on ``push``, and in a background thread after ``push_soon``.

    Args:
        mirror: Mirror of the folder.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._wanted, self._is_over = threading.Event(), False

    @property
    def token(self) -> FencingToken | None:
        """The token under which the folder is held."""
        return self._mirror.fence.token if self._mirror.fence else None

    def push(self) -> None:
        """Upload what has changed; nothing after ``hand_over``.

        Raises:
            RunError: The store refuses, or has not answered for long, or another process has taken the folder over.
        """
        self._wanted.clear()
        if not self._is_over:
            self._mirror.push()

    def push_within(self, seconds: float) -> None:
        """Push as far as it goes in so many seconds; what is not in the store then is logged."""

        def push() -> None:
            with logged():
                self.push()

        thread = threading.Thread(target=push, daemon=True, name="ebclab-last-push")
        thread.start()
        thread.join(seconds)
        if not self._is_over and (unsent := self._mirror.unsent()):
            shown = ", ".join(unsent[:5]) + (" ..." if len(unsent) > 5 else "")
            _log.warning(
                "%s: stopped before everything was in the store, %d files are not: %s; the same command goes on from "
                "what is there",
                self._mirror.remote.address,
                len(unsent),
                shown,
            )

    def push_soon(self) -> None:
        """Upload within some seconds; an upload that fails is tried again."""
        self._wanted.set()

    def push_if_wanted(self) -> None:
        """Upload when ``push_soon`` was called."""
        if not self._wanted.is_set():
            return
        try:
            self.push()
        except BaseException:
            self._wanted.set()
            raise

    def hand_over(self) -> None:
        """Push for the last time: from here on, other processes write into the store."""
        self.push()
        self._is_over = True


@contextmanager
def synced(mirror: Mirror) -> Iterator[Syncer]:
    """Yield a syncer for a mirror that has pulled; push once more at the end, whatever that is.

    A checkpoint is pushed when it is made; who was asked to stop has little more to send, and waits for some seconds.

    Raises:
        RunError: The store refuses, or has not answered for long.
    """
    syncer = StoreSyncer(mirror)
    with repeating(syncer.push_if_wanted, _PUSH_SECONDS, "an upload"):
        try:
            yield syncer
        except (KeyboardInterrupt, InterruptedRunError):
            syncer.push_within(_LAST_SECONDS)
            raise
        except BaseException:
            syncer.push()
            raise
        syncer.push()


@contextmanager
def downloading(remote: RemoteFolder, name: str) -> Iterator[None]:
    """Download the file ``name`` every few seconds when it has changed, and the whole folder at the end.

    Args:
        remote: The folder, in which other processes write.
        name: The file.
    """
    store, last = Store(remote, seconds=0), [Stored(-1, None)]

    def look() -> None:
        stored = store.stored(name)
        if stored is not None and stored != last[0]:
            store.download(name, remote.cache / name)
            last[0] = stored

    with repeating(look, _LOOK_SECONDS, "a look into the store"):
        yield
    Mirror(remote).pull()
