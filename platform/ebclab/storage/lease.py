"""Holding a folder in a store for one process, on whatever machine it runs."""

from __future__ import annotations

import json
import os
import socket
import uuid
from datetime import UTC, datetime

from ebclab.errors import RunError
from ebclab.storage.home import Home
from ebclab.storage.store import Store

NAME = ".held.json"
LIFETIME = 60.0
"""Seconds without a sign of life after which a holder counts as dead."""


class Lease:
    """A sign of life in the store that keeps other processes out; it must be renewed well within its lifetime.

    A store has no lock: two processes that ask in the same instant may both get it.

    Args:
        home: The folder.
        busy: What the holder is doing, for messages.
    """

    def __init__(self, home: Home, busy: str) -> None:
        self._home, self._busy, self._store = home, busy, Store(home)
        self._id = uuid.uuid4().hex

    def take(self) -> None:
        """Hold the folder.

        Raises:
            RunError: Another process holds it, or the store refuses to be written to.
        """
        age, holder = _holder(self._store)
        if age is not None and age < LIFETIME and not _is_dead(holder):
            raise RunError(
                f"{self._home.address}: another process {self._busy}, got {holder.get('host')}, process "
                f"{holder.get('process')}, last heard of {max(age, 0):.0f} s ago; wait for it or stop it "
                f"(a dead one is forgotten after {LIFETIME:.0f} s)"
            )
        self.renew()

    def renew(self) -> None:
        """Give a sign of life."""
        sign = {"id": self._id, "host": socket.gethostname(), "process": os.getpid()}
        self._store.write(NAME, json.dumps(sign).encode())

    def give_back(self) -> None:
        """Let others in, unless somebody has taken it over."""
        _, holder = _holder(self._store)
        if holder.get("id") == self._id:
            self._store.delete(NAME)


def held_by(home: Home) -> str:
    """Return the host that works in the folder at this moment; empty when none does."""
    age, holder = _holder(Store(home))
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


def _is_dead(holder: dict[str, object]) -> bool:
    """Return whether the holder was a process of this machine that is gone."""
    process = holder.get("process")
    if holder.get("host") != socket.gethostname() or not isinstance(process, int):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
