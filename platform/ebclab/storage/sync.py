"""Uploads files that a process writes to a local copy, and downloads files that other processes write."""

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

_PUSH_SECONDS = 5.0  # between checks whether a push is due
_LOOK_SECONDS = 2.0  # between checks for changes by other processes
_LAST_SECONDS = 5.0  # for the final push of a process that was requested to stop

_log = logging.getLogger("ebclab.storage")


class Syncer(Protocol):
    """Transfers files that a process has written to the storage of its run or sweep."""

    @property
    def token(self) -> FencingToken | None:
        """The fencing token under which the folder is held; None on a disk."""

    def push(self) -> None:
        """Upload everything written so far; return once it is in the store."""

    def push_soon(self) -> None:
        """Schedule an upload of everything written so far within a few seconds."""

    def hand_over(self) -> None:
        """Push for the last time; from then on, other processes write to the store."""


class NoSync:
    """Syncer of a folder on a disk: nothing needs to be uploaded."""

    token = None

    def push(self) -> None:
        """Do nothing."""

    def push_soon(self) -> None:
        """Do nothing."""

    def hand_over(self) -> None:
        """Do nothing."""


class StoreSyncer:
    """Uploads immediately on ``push``, and in a background thread after ``push_soon``.

    Args:
        mirror: Mirror of the folder.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._wanted, self._is_over = threading.Event(), False

    @property
    def token(self) -> FencingToken | None:
        """The fencing token under which the folder is held; None if the mirror has no fence."""
        return self._mirror.fence.token if self._mirror.fence else None

    def push(self) -> None:
        """Upload changed files; do nothing after ``hand_over``."""
        self._wanted.clear()
        if not self._is_over:
            self._mirror.push()

    def push_within(self, seconds: float) -> None:
        """Push for at most ``seconds``; files that are not in the store by then are logged as a warning."""

        def push() -> None:
            with logged():
                self.push()

        thread = threading.Thread(target=push, daemon=True, name="ebclab-last-push")
        thread.start()
        thread.join(seconds)
        if not self._is_over and (unsent := self._mirror.unsent()):
            shown = ", ".join(unsent[:5]) + (" ..." if len(unsent) > 5 else "")
            _log.warning(
                "%s: stopped before everything was in the store, %d files are not: %s; the same command resumes from "
                "what is there",
                self._mirror.remote.address,
                len(unsent),
                shown,
            )

    def push_soon(self) -> None:
        """Request an upload within a few seconds; a failed upload is retried."""
        self._wanted.set()

    def push_if_wanted(self) -> None:
        """Upload if ``push_soon`` was called since the last push."""
        if not self._wanted.is_set():
            return
        try:
            self.push()
        except BaseException:
            self._wanted.set()
            raise

    def hand_over(self) -> None:
        """Push for the last time; from then on, other processes write to the store."""
        self.push()
        self._is_over = True


@contextmanager
def synced(mirror: Mirror) -> Iterator[Syncer]:
    """Yield a syncer for a mirror that has pulled; push once more at exit, also after an exception.

    Checkpoints are pushed as they are saved, so a process that was requested to stop has little left to upload: its
    final push is limited to ``_LAST_SECONDS``.
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
    """Download the file ``name`` every few seconds if it has changed, and the entire folder at normal exit.

    Args:
        remote: The folder, to which other processes write.
        name: Name of the file.
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
