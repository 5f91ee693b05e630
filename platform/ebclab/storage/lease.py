"""Holding a folder in a store for one process, on whatever machine it runs."""

from __future__ import annotations

import json
import os
import socket
import uuid
from datetime import UTC, datetime
from pathlib import Path

from ebclab.errors import RunError
from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder

NAME = ".held.json"
_CLOCK = ".clock"
LIFETIME = 60.0
"""Seconds without a sign of life after which a holder counts as dead."""


_LOST: set[str] = set()
"""Addresses of folders that this process held until another one took them over."""


class Lease:
    """A sign of life in the store that keeps other processes out; it must be renewed well within its lifetime.

    A store has no lock: two processes that ask in the same instant may both get it, until the next renewal.

    Args:
        remote: The folder.
        busy: What the holder is doing, for messages.
    """

    def __init__(self, remote: RemoteFolder, busy: str) -> None:
        self._remote, self._busy, self._store = remote, busy, Store(remote)
        self._id = uuid.uuid4().hex

    def take(self) -> None:
        """Hold the folder.

        Raises:
            RunError: Another process holds it, or the store refuses to be written to.
        """
        require_free(self._remote, self._busy)
        _LOST.discard(self._remote.address)
        self._sign()

    def renew(self) -> None:
        """Give a sign of life.

        Raises:
            RunError: Another process has taken the folder over, after this one had been silent for long.
        """
        _, holder = _holder(self._store)
        if holder.get("id") not in (None, self._id):
            _LOST.add(self._remote.address)
        require_not_lost(self._remote)
        self._sign()

    def give_back(self) -> None:
        """Let others in, unless somebody has taken it over."""
        _, holder = _holder(self._store)
        if holder.get("id") == self._id:
            self._store.delete(NAME)

    def _sign(self) -> None:
        self._store.write(NAME, json.dumps({"id": self._id, **_this_process()}).encode())


def require_free(remote: RemoteFolder | None, busy: str) -> None:
    """Refuse a folder that another process holds, before its copy on this machine is touched.

    Args:
        remote: The folder; None for one on a disk, which is held otherwise.
        busy: What a holder is doing, for the message.

    Raises:
        RunError: It is held.
    """
    if remote is None:
        return
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
    """Refuse to go on in a folder that another process has taken over from this one.

    Raises:
        RunError: It has.
    """
    if remote.address in _LOST:
        raise RunError(
            f"{remote.address}: another process has taken over, since this one had given no sign of life for "
            f"{LIFETIME:.0f} s; it goes on from the last checkpoint in the store"
        )


def held_by(remote: RemoteFolder) -> str:
    """Return the host that works in the folder at this moment; empty when none does."""
    age, holder = _holder(Store(remote))
    return str(holder.get("host", "")) if age is not None and age < LIFETIME and not _is_dead(holder) else ""


def _holder(store: Store) -> tuple[float | None, dict[str, object]]:
    """Return the age in seconds of the newest sign of life and who gave it."""
    found = store.stored(NAME)
    if found is None or found.changed is None:
        return None, {}
    try:
        holder = json.loads(store.read(NAME))
    except (FileNotFoundError, ValueError):
        return None, {}
    age = (datetime.now(UTC) - found.changed.astimezone(UTC)).total_seconds()
    return age, holder if isinstance(holder, dict) else {}


def _age_by_the_stores_clock(store: Store) -> float:
    """Return the age in seconds of the newest sign of life, told by the store's clock alone."""
    store.write(_CLOCK, b"")
    now, sign = store.stored(_CLOCK), store.stored(NAME)
    store.delete(_CLOCK)
    if now is None or sign is None or now.changed is None or sign.changed is None:
        return LIFETIME
    return (now.changed - sign.changed).total_seconds()


def _this_process() -> dict[str, object]:
    """Return what tells this process from all others, on this machine and elsewhere."""
    return {"host": socket.gethostname(), "machine": _machine(), "process": os.getpid()}


def _machine() -> str:
    """Return what all processes that know each other's numbers have in common."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux
        return socket.gethostname()


def _is_dead(holder: dict[str, object]) -> bool:
    """Return whether the holder was a process of this machine that is gone."""
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
