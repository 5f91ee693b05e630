"""The lease of a folder in a store: one process at a time holds it, on whatever machine it runs."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ebclab.background import logged, repeating
from ebclab.errors import RunError
from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder

NAME = ".held.json"
_CLOCK = ".clock"
LIFETIME = 60.0
"""Seconds without a sign of life after which a holder counts as dead."""

_RENEWED = LIFETIME / 4  # seconds between signs of life

_LOST: set[str] = set()
"""Addresses of folders that this process held until another one took them over."""


class Lease:
    """A sign of life in the store that keeps other processes out; its holder renews it well within ``LIFETIME``.

    A store has no lock: two processes that ask in the same instant may both get the lease, until the next renewal.

    Args:
        remote: The folder.
        busy: What the holder does, for messages.
    """

    def __init__(self, remote: RemoteFolder, busy: str) -> None:
        self._remote, self._busy, self._store = remote, busy, Store(remote)
        self._id = uuid.uuid4().hex

    def take(self) -> None:
        """Take the lease.

        Raises:
            RunError: Another process holds it, or the store refuses to be written to.
        """
        require_free(self._remote, self._busy)
        _LOST.discard(self._remote.address)
        self._sign()

    def renew(self) -> None:
        """Give a sign of life.

        Raises:
            RunError: Another process has taken the folder over, since this one was silent for too long.
        """
        _, holder = _holder(self._store)
        if holder.get("id") not in (None, self._id):
            _LOST.add(self._remote.address)
        require_not_lost(self._remote)
        self._sign()

    def give_back(self) -> None:
        """Remove the sign of life, unless it is another process's by now."""
        _, holder = _holder(self._store)
        if holder.get("id") == self._id:
            self._store.delete(NAME)

    def _sign(self) -> None:
        self._store.write(NAME, json.dumps({"id": self._id, **_this_process()}).encode())


@contextmanager
def leased(remote: RemoteFolder, busy: str) -> Iterator[None]:
    """Hold the lease of ``remote`` and renew it in a background thread.

    Raises:
        RunError: Another process holds it, or the store refuses.
    """
    lease = Lease(remote, busy)
    lease.take()
    try:
        with repeating(lease.renew, _RENEWED):
            yield
    finally:
        with logged():
            lease.give_back()


def require_free(remote: RemoteFolder, busy: str) -> None:
    """Refuse a folder that another process holds.

    Args:
        remote: The folder.
        busy: What the holder does, for the message.

    Raises:
        RunError: It is held.
    """
    store = Store(remote)
    age, holder = _holder(store)
    if age is None or _is_dead(holder):
        return
    if age >= LIFETIME or age < 0:  # this machine's clock may be wrong
        age = _age_by_the_stores_clock(store)
    if age < LIFETIME:
        raise RunError(
            f"{remote.address}: another process {busy}, got {holder.get('host')}, process "
            f"{holder.get('process')}, last heard of {max(age, 0):.0f} s ago; wait for it or stop it "
            f"(a dead one is forgotten after {LIFETIME:.0f} s)"
        )


def require_not_lost(remote: RemoteFolder) -> None:
    """Refuse to write into a folder that another process has taken over from this one.

    Raises:
        RunError: Another process has taken it over.
    """
    if remote.address in _LOST:
        raise RunError(
            f"{remote.address}: another process has taken over, since this one had given no sign of life for "
            f"{LIFETIME:.0f} s; it goes on from the last checkpoint in the store"
        )


def held_by(remote: RemoteFolder) -> str:
    """Return the host whose process holds the folder at this moment; empty when none does."""
    age, holder = _holder(Store(remote))
    return str(holder.get("host", "")) if age is not None and age < LIFETIME and not _is_dead(holder) else ""


def _holder(store: Store) -> tuple[float | None, dict[str, object]]:
    """Return the age in seconds of the newest sign of life, and what it says of its process."""
    sign = store.stored(NAME)
    if sign is None or sign.changed is None:
        return None, {}
    try:
        holder = json.loads(store.read(NAME))
    except (FileNotFoundError, ValueError):
        return None, {}
    age = (datetime.now(UTC) - sign.changed.astimezone(UTC)).total_seconds()
    return age, holder if isinstance(holder, dict) else {}


def _age_by_the_stores_clock(store: Store) -> float:
    """Return the age in seconds of the newest sign of life by the store's clock alone."""
    store.write(_CLOCK, b"")
    now, sign = store.stored(_CLOCK), store.stored(NAME)
    store.delete(_CLOCK)
    if now is None or sign is None or now.changed is None or sign.changed is None:
        return LIFETIME
    return (now.changed - sign.changed).total_seconds()


def _this_process() -> dict[str, object]:
    """Return host, machine and number of this process, which together identify it."""
    return {"host": socket.gethostname(), "machine": _machine(), "process": os.getpid()}


def _machine() -> str:
    """Return the identity of this boot and its process numbers: equal for processes that see each other's numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux
        return socket.gethostname()


def _is_dead(holder: dict[str, object]) -> bool:
    """Return whether the holder was a process of this machine that has ended."""
    process = holder.get("process")
    if holder.get("machine") != _machine() or not isinstance(process, int):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
