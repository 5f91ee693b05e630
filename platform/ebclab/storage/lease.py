"""The lease of a folder in a store: one process at a time holds it, on whatever machine it runs.

A lease is a small file that its holder renews. It can be lost: to a process that took a silent holder for dead, or with
the folder. Each take has a token of its own, with an epoch that only rises. Whoever writes under a token asks for it
first (``Fence``), and a lease that is missing or another's is lost for good, however its new holder fares.
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
from ebclab.storage.object_store import Store, Stored
from ebclab.storage.reading import json_value
from ebclab.storage.remote import RemoteFolder
from ebclab.storage.swap.conditional import conditional_file
from ebclab.storage.swap.file import LocalFile, PlainFile, ReplacedError, Seen, SwapFile
from ebclab.storage.typed_json import typed

NAME = ".held.json"
LIFETIME = 60.0
"""Seconds without a sign of life after which a holder counts as dead."""

_RENEWED = LIFETIME / 4  # seconds between signs of life
_TRUSTED = LIFETIME / 12  # seconds for which a look at the lease is good within one push
_TRIES = 3
_GIVEN_BACK = 5.0  # seconds for which giving back is tried; without it the lease is forgotten after its lifetime


@dataclass(frozen=True)
class FencingToken:
    """One take of a lease, told from all others.

    Attributes:
        id: Unique; an epoch begins anew when a folder was deleted.
        epoch: Number of the take; each take of a folder has a higher one.
    """

    id: str
    epoch: int


@dataclass(frozen=True)
class SignOfLife:
    """A sign of life: the content of the lease's file. Those of the first versions have no epoch.

    Attributes:
        id: Of the holder's token.
        epoch: Of the holder's token.
        renewed: How often the holder has renewed it, so that no two signs are equal.
        free: It was given back.
        host: The holder's host.
        machine: The holder's machine and its process numbers.
        process: The holder's process number.
    """

    id: str
    epoch: int = 0
    renewed: int = 0
    free: bool = False
    host: str = "an unknown host"
    machine: str = ""
    process: int = 0

    @property
    def token(self) -> FencingToken:
        return FencingToken(self.id, self.epoch)


class Fence:
    """Keeps a process out of a folder whose lease is no longer held under its token.

    Args:
        remote: The folder.
        token: The token under which this process, or the one that launched it, has taken the lease.
        file: The lease's file; None opens it.
    """

    def __init__(self, remote: RemoteFolder, token: FencingToken, file: SwapFile | None = None) -> None:
        self.token = token
        self._address, self._file = remote.address, file or _file(remote)
        self._lost, self._asked = "", -math.inf
        self._lock = threading.Lock()

    def check(self, *, ask: bool = True) -> None:
        """Refuse to write into a folder that another process has taken over.

        Args:
            ask: Ask the store; else only what this process knows already counts.

        Raises:
            LostLeaseError: The lease is another's, or missing.
        """
        if ask and not self._lost:
            asked = _seconds()
            self.compare(self._file.read())
            self._asked = asked
        if self._lost:
            raise LostLeaseError(f"{self._address}: {self._lost}")

    def check_again(self) -> None:
        """Check as ``check`` does, but ask the store only when the last answer is some seconds old.

        Raises:
            LostLeaseError: The lease is another's, or missing.
        """
        with self._lock:
            self.check(ask=_seconds() - self._asked > _TRUSTED)

    def compare(self, seen: Seen | None) -> None:
        """Note whether the lease as it was read is still held under the token."""
        sign = _sign(seen)
        if seen is None:
            self.end("its lease is gone, somebody deleted the folder or its " + NAME)
        elif sign is None or sign.token != self.token:
            self.end(
                f"another process has taken over, since this one had given no sign of life for {LIFETIME:.0f} s; "
                "it goes on from the last checkpoint in the store"
            )
        elif sign.free:
            self.end("its lease was given back")

    def end(self, reason: str) -> None:
        """Refuse from now on, with this reason; the first one stays."""
        self._lost = self._lost or f"{reason}; nothing more of this process is written there"


class Lease:
    """A sign of life in the store that keeps other processes out; its holder renews it well within ``LIFETIME``.

    Args:
        remote: The folder.
        busy: What the holder does, for messages.
    """

    def __init__(self, remote: RemoteFolder, busy: str) -> None:
        self._remote, self._busy = remote, busy
        self._file = conditional_file(remote, NAME) or _file(remote)
        self._hasty = conditional_file(remote, NAME, seconds=_GIVEN_BACK) or _file(remote, seconds=_GIVEN_BACK)
        self._lock = threading.Lock()
        self._sign, self._seen = SignOfLife(""), Seen(b"")
        self.fence = Fence(remote, self._sign.token, self._file)

    def take(self) -> None:
        """Take the lease.

        Raises:
            RunError: Another process holds it, or the store refuses to be written to.
        """
        while True:
            seen = _require_free(self._file, self._remote, self._busy)
            before = _sign(seen)
            self._sign = _this_process(epoch=before.epoch + 1 if before else 1)
            try:
                self._seen = self._file.write(_content(self._sign), over=seen)
            except ReplacedError:
                found = self._file.read()
                if found is None or found.content != _content(self._sign):
                    continue  # another process was faster
                self._seen = found  # this one was, but has not heard
            self.fence = Fence(self._remote, self._sign.token, self._file)
            return

    def renew(self) -> None:
        """Give a sign of life.

        Raises:
            LostLeaseError: Another process has taken the folder over, since this one was silent for too long.
        """
        with self._lock:
            self.fence.check(ask=False)
            self._sign = replace(self._sign, renewed=self._sign.renewed + 1)
            self._write(self._file)

    def give_back(self) -> None:
        """Let others take the lease, unless it is another process's by now; this process writes no more.

        The file stays: the next take goes on counting from its epoch.
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
            self._write(self._hasty)
        except LostLeaseError:
            return
        finally:
            self._lock.release()

    def remove(self) -> None:
        """Delete the lease with its folder, of which nothing else is left.

        Raises:
            LostLeaseError: It is another process's by now.
        """
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
                    self._seen = found  # an earlier sign of this process, whose answer was lost
            else:
                return
        raise StoreError(f"{self._remote.address}: the store refuses a sign of life that replaces the one before")


@contextmanager
def leased(remote: RemoteFolder, busy: str) -> Iterator[Lease]:
    """Hold the lease of ``remote`` and renew it in a background thread.

    Raises:
        RunError: Another process holds it, or the store refuses.
    """
    lease = Lease(remote, busy)
    lease.take()
    try:
        with repeating(lease.renew, _RENEWED, "the sign of life in a store"):
            yield lease
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
    _require_free(_file(remote), remote, busy)


def require_all_free(remote: RemoteFolder, files: Mapping[str, Stored], busy: str) -> None:
    """Refuse a folder of which, or of a folder within which, another process holds the lease.

    Leases that are older than ``LIFETIME`` by the store's clock, which is asked for once, are not read.

    Args:
        remote: The folder.
        files: All files in it, by name.
        busy: What the holder does, for the message.

    Raises:
        RunError: One is held.
    """
    now: datetime | None = None
    for name, stored in files.items():
        inside, _, file = name.rpartition("/")
        if file != NAME:
            continue
        if stored.changed is not None and not _is_young(stored.changed):  # by this machine's clock, which may be wrong
            now = now or _file(remote).now()
            if now is not None and (now - stored.changed).total_seconds() >= LIFETIME:
                continue
        require_free(remote / inside if inside else remote, busy)


def held_by(remote: RemoteFolder, changed: float = 0.0) -> str:
    """Return the host whose process holds the folder at this moment; empty when none does.

    Args:
        remote: The folder.
        changed: When a listing says that its lease was written, in seconds since 1970; an old one is not read. 0 where
            it does not say.
    """
    if changed and not _is_young(datetime.fromtimestamp(changed, UTC)):
        return ""
    file = _file(remote)
    found = _sign(file.read())
    if found is None or found.free or _is_dead(found):
        return ""
    written = file.changed()
    return found.host if written is not None and _is_young(written) else ""


def _file(remote: RemoteFolder, *, seconds: float | None = None) -> SwapFile:
    """Return the lease's file for those who only read it, and for stores without conditional writes."""
    store = Store(remote, seconds=seconds)
    if store.location.filesystem.type_name == "local":
        path = store.location.inner_path(f"{remote.inside}/{NAME}")
        return LocalFile(Path(path), remote.address, seconds=seconds)
    return PlainFile(store, NAME)


def _require_free(file: SwapFile, remote: RemoteFolder, busy: str) -> Seen | None:
    """Refuse a lease that is held, or may be; return what was read."""
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
    """Return the age of a lease in seconds; None when it cannot be known.

    Only the store's own clock makes a holder dead: this machine's may be wrong.
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
    """Return whether a sign of life is younger than ``LIFETIME`` by this machine's clock."""
    return (datetime.now(UTC) - changed.astimezone(UTC)).total_seconds() < LIFETIME


def _sign(seen: Seen | None) -> SignOfLife | None:
    """Return what a lease's file says; None when it says nothing that can be read."""
    try:
        return typed(json_value(seen.content), SignOfLife) if seen is not None else None
    except ValueError:
        return None


def _content(sign: SignOfLife) -> bytes:
    return json.dumps(asdict(sign)).encode()


def _seconds() -> float:
    """Return a time in seconds that goes on while the machine sleeps, where the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _this_process(*, epoch: int) -> SignOfLife:
    """Return a new sign of life: host, machine and number together identify this process."""
    return SignOfLife(uuid.uuid4().hex, epoch, host=socket.gethostname(), machine=_machine(), process=os.getpid())


def _machine() -> str:
    """Return the identity of this boot and its process numbers: equal for processes that see each other's numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux
        return socket.gethostname()


def _is_dead(sign: SignOfLife) -> bool:
    """Return whether the holder was a process of this machine that has ended."""
    if sign.machine != _machine() or sign.process <= 0:
        return False
    try:
        os.kill(sign.process, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
