"""The lease of a folder in a store: held by one process at a time, across all machines.

A lease is a small file that its holder renews. It is lost if another process takes it over from a holder that has not
renewed it, or if the folder is deleted. Each acquisition has its own token, with a monotonically increasing epoch. A
process verifies its token before it writes (``Fence``); a lease that is missing or held under another token is lost
permanently, even if its new holder ends.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ebclab.background import logged, repeating
from ebclab.errors import LostLeaseError, RunError, StoreError
from ebclab.storage.object_store import RemoteFolder, Stored, may_live
from ebclab.storage.reading import json_value, typed
from ebclab.storage.swap import ReplacedError, Seen, SwapFile, readable_file, writable_file

NAME = ".held.json"
LIFETIME = 60.0
"""Seconds without a renewal after which a holder is considered dead."""

_RENEWED = LIFETIME / 4  # seconds between renewals
_TRUSTED = LIFETIME / 12  # seconds for which a check of the lease remains valid within one push
_TRIES = 3
_GIVEN_BACK = 5.0  # seconds for which a release is attempted; otherwise the lease expires after its lifetime


@dataclass(frozen=True)
class FencingToken:
    """Identifies one acquisition of a lease."""

    id: str  # unique identifier; epochs alone are ambiguous, since they restart after the folder was deleted
    epoch: int  # number of the acquisition; increases with each acquisition of a folder


@dataclass(frozen=True)
class _SignOfLife:
    """Content of the lease's file (heartbeat). Files of the first versions have no epoch."""

    id: str  # id of the holder's token
    epoch: int = 0  # epoch of the holder's token
    renewed: int = 0  # number of renewals by the holder, so that no two contents are equal
    free: bool = False  # whether the lease was released
    host: str = "an unknown host"  # host name of the holder
    machine: str = ""  # identity of the holder's boot and process namespace
    process: int = 0  # process id of the holder

    @property
    def token(self) -> FencingToken:
        return FencingToken(self.id, self.epoch)


class Fence:
    """Refuses access of a process to a folder whose lease is no longer held under its token.

    Args:
        token: The token under which this process, or the one that launched it, has acquired the lease.
    """

    def __init__(self, remote: RemoteFolder, token: FencingToken, file: SwapFile | None = None) -> None:
        self.token = token
        self._address, self._file = remote.address, file or readable_file(remote, NAME)
        self._lost, self._asked = "", -math.inf
        self._lock = threading.Lock()

    def check(self, *, ask: bool = True) -> None:
        """Refuse to write to a folder whose lease was lost; without ``ask``, by what this process knows already."""
        if ask and not self._lost:
            asked = _seconds()
            self.compare(self._file.read())
            self._asked = asked
        if self._lost:
            raise LostLeaseError(f"{self._address}: {self._lost}")

    def check_again(self) -> None:
        """Check as ``check`` does, but query the store only if the last response is older than a few seconds."""
        with self._lock:
            self.check(ask=_seconds() - self._asked > _TRUSTED)

    def compare(self, seen: Seen | None) -> None:
        """Record whether the lease, as it was read, is still held under the token."""
        sign = _sign(seen)
        if seen is None:
            self.end("its lease is gone, someone deleted the folder or its " + NAME)
        elif sign is None or sign.token != self.token:
            self.end(
                f"another process has taken over, since this one had given no sign of life for {LIFETIME:.0f} s; "
                "it resumes from the last checkpoint in the store"
            )
        elif sign.free:
            self.end("its lease was given back")

    def end(self, reason: str) -> None:
        """Refuse all writes from now on; the first reason given is kept."""
        self._lost = self._lost or f"{reason}; nothing more of this process is written there"


class Lease:
    """A file in the store that excludes other processes; its holder renews it well within ``LIFETIME``."""

    def __init__(self, remote: RemoteFolder, busy: str) -> None:
        self._remote, self._busy = remote, busy
        self._file = writable_file(remote, NAME)
        self._lock = threading.Lock()
        self._sign, self._seen = _SignOfLife(""), Seen(b"")
        self.fence = Fence(remote, self._sign.token, self._file)

    def take(self) -> None:
        """Acquire the lease."""
        while True:
            seen = _require_free(self._file, self._remote, self._busy)
            before = _sign(seen)
            self._sign = _SignOfLife(
                uuid.uuid4().hex,
                epoch=before.epoch + 1 if before else 1,
                host=socket.gethostname(),
                machine=_machine(),
                process=os.getpid(),
            )
            try:
                self._seen = self._file.write_once(_content(self._sign), over=seen)
            except ReplacedError:
                continue  # another process was faster
            self.fence = Fence(self._remote, self._sign.token, self._file)
            return

    def renew(self) -> None:
        """Renew the lease."""
        with self._lock:
            self.fence.check(ask=False)
            self._sign = replace(self._sign, renewed=self._sign.renewed + 1)
            self._write(self._file)

    def give_back(self) -> None:
        """Release the lease, unless another process holds it by now; this process can write no more.

        The file is kept, so that the next acquisition continues from its epoch.
        """
        if not self._lock.acquire(timeout=_GIVEN_BACK):
            raise RunError(
                f"{self._remote.address}: not given back, a request of before has no answer; "
                f"it is forgotten after {LIFETIME:.0f} s"
            )
        try:
            self.fence.check(ask=False)
            self.fence.end("its lease was given back")
            self._sign = replace(self._sign, free=True)
            self._write(self._file.within(_GIVEN_BACK))
        except LostLeaseError:
            return
        finally:
            self._lock.release()

    def remove(self) -> None:
        """Delete the lease as the last file of its folder."""
        with self._lock:
            self.fence.check()
            self._file.delete()
            self.fence.end("its folder was deleted")

    def _write(self, file: SwapFile) -> None:
        for _ in range(_TRIES):
            try:
                self._seen = file.write(_content(self._sign), over=self._seen)
            except ReplacedError:
                found = file.read()
                sign = _sign(found)
                if found is None or sign is None or sign.token != self._sign.token:
                    self.fence.compare(found)
                    self.fence.check(ask=False)
                else:
                    self._seen = found  # an earlier write of this process, whose response was lost
            else:
                return
        raise StoreError(f"{self._remote.address}: the store refuses a sign of life that replaces the one before")


@contextmanager
def leased(remote: RemoteFolder, busy: str) -> Iterator[Lease]:
    """Hold the lease of ``remote`` and renew it in a background thread."""
    lease = Lease(remote, busy)
    lease.take()
    try:
        with repeating(lease.renew, _RENEWED, "the sign of life in a store"):
            yield lease
    finally:
        with logged():
            lease.give_back()


def require_free(remote: RemoteFolder, busy: str) -> None:
    """Refuse a folder that another process holds; ``busy`` is the activity of the holder, for the message."""
    _require_free(readable_file(remote, NAME), remote, busy)


def require_all_free(remote: RemoteFolder, files: Mapping[str, Stored], busy: str) -> None:
    """Refuse a folder if another process holds its lease, or the lease of a folder within it.

    Leases that are older than ``LIFETIME`` by the store's clock, which is queried once, are not read.
    """
    now: datetime | None = None
    for name, stored in files.items():
        inside, _, file = name.rpartition("/")
        if file != NAME:
            continue
        if stored.changed is not None and not _is_young(stored.changed):  # by this machine's clock, which may be wrong
            now = now or readable_file(remote, NAME).now()
            if now is not None and (now - stored.changed).total_seconds() >= LIFETIME:
                continue
        require_free(remote / inside if inside else remote, busy)


def held_by(remote: RemoteFolder, changed: float = 0.0) -> str:
    """Return the host whose process currently holds the folder; empty if there is none.

    Args:
        changed: Modification time of its lease in a listing, in seconds since 1970, or 0 if unknown; an expired lease
            is not read.
    """
    if changed and not _is_young(datetime.fromtimestamp(changed, UTC)):
        return ""
    file = readable_file(remote, NAME)
    found = _sign(file.read())
    if found is None or found.free or _is_dead(found):
        return ""
    written = file.changed()
    return found.host if written is not None and _is_young(written) else ""


def _require_free(file: SwapFile, remote: RemoteFolder, busy: str) -> Seen | None:
    """Refuse a lease that is, or may be, held; return its file as it was read."""
    seen = file.read()
    sign = _sign(seen)
    if seen is None or (sign is not None and (sign.free or _is_dead(sign))):
        return seen
    age = _age(file)
    if age is None or age < LIFETIME:
        who = f"{sign.host}, process {sign.process}" if sign else f"a {NAME} that cannot be read"
        heard = "at an unknown time" if age is None else f"{max(age, 0):.0f} s ago"
        raise RunError(
            f"{remote.address}: another process {busy}, got {who}, last heard of {heard}; wait for it or stop it "
            f"(a dead one is forgotten after {LIFETIME:.0f} s)"
        )
    return seen


def _age(file: SwapFile) -> float | None:
    """Return the age of a lease in seconds; None if unknown.

    A holder is declared dead only by the store's clock, since this machine's may be wrong.
    """
    changed = file.changed()
    if changed is None:
        return None
    age = (datetime.now(UTC) - changed.astimezone(UTC)).total_seconds()
    if 0 <= age < LIFETIME:
        return age
    now = file.now()
    return None if now is None else (now - changed).total_seconds()


def _is_young(changed: datetime) -> bool:
    """Return whether a renewal is more recent than ``LIFETIME`` by this machine's clock."""
    return (datetime.now(UTC) - changed.astimezone(UTC)).total_seconds() < LIFETIME


def _sign(seen: Seen | None) -> _SignOfLife | None:
    """Return the parsed content of a lease's file; None if there is no file or it cannot be parsed."""
    try:
        return typed(json_value(seen.content), _SignOfLife) if seen is not None else None
    except ValueError:
        return None


def _content(sign: _SignOfLife) -> bytes:
    return json.dumps(asdict(sign)).encode()


def _seconds() -> float:
    """Return a monotonic time in seconds that includes time in suspend, if the system supports it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _machine() -> str:
    """Return the identity of this boot and process namespace: equal for processes that share process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return socket.gethostname()


def _is_dead(sign: _SignOfLife) -> bool:
    """Return whether the holder was a process of this machine that has exited."""
    return sign.machine == _machine() and sign.process > 0 and not may_live(sign.process)
