"""Uploads files that a process writes to a local copy, and downloads files that other processes write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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


class Syncer:
    """Transfers files that a process has written to the storage of its run or sweep.

    Uploads immediately on ``push``, and in a background thread after ``push_soon``.

    Args:
        mirror: Mirror of the folder; None for a folder on a disk, of which nothing is uploaded.

    Attributes:
        token: The fencing token under which the folder is held; None on a disk and without a fence.
    """

    def __init__(self, mirror: Mirror | None = None) -> None:
        self._mirror, self._wanted = mirror, threading.Event()
        self.token: FencingToken | None = mirror.fence.token if mirror and mirror.fence else None

    def push(self) -> None:
        """Upload everything written so far; return once it is in the store. Do nothing after ``hand_over``."""
        self._wanted.clear()
        if (mirror := self._mirror) is not None:
            mirror.push()

    def push_soon(self) -> None:
        """Request an upload of everything written so far within a few seconds; a failed upload is retried."""
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

    def push_within(self, seconds: float) -> None:
        """Push for at most ``seconds``; files that are not in the store by then are logged as a warning."""

        def push() -> None:
            with logged():
                self.push()

        thread = threading.Thread(target=push, daemon=True, name="ebclab-last-push")
        thread.start()
        thread.join(seconds)
        if (mirror := self._mirror) is not None and (unsent := mirror.unsent()):
            shown = ", ".join(unsent[:5]) + (" ..." if len(unsent) > 5 else "")
            _log.warning(
                "%s: stopped before everything was in the store, %d files are not: %s; the same command resumes from "
                "what is there",
                mirror.remote.address,
                len(unsent),
                shown,
            )

    def hand_over(self) -> None:
        """Push for the last time; from then on, other processes write to the store."""
        self.push()
        self._mirror = None


@contextmanager
def synced(mirror: Mirror) -> Iterator[Syncer]:
    """Yield a syncer for a mirror that has pulled; push once more at exit, also after an exception.

    Checkpoints are pushed as they are saved, so a process that was requested to stop has little left to upload: its
    final push is limited to ``_LAST_SECONDS``.
    """
    syncer = Syncer(mirror)
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
    """Download the file ``name`` every few seconds if it has changed, and the entire folder at normal exit."""
    store, last = Store(remote, seconds=0), [Stored(-1, None)]

    def look() -> None:
        stored = store.stored(name)
        if stored is not None and stored != last[0]:
            store.download(name, remote.cache / name)
            last[0] = stored

    with repeating(look, _LOOK_SECONDS, "a look into the store"):
        yield
    Mirror(remote).pull()
