"""A copy and its home kept alike, in one direction at a time.

The store is the truth when a process begins (``pull``), the copy while it works (``push``). Checkpoints are folders
that a manifest completes: it is uploaded last and deleted first, and without it a checkpoint does not exist. So
nothing that was broken off on its way is ever taken for whole. Names that begin with a dot stay where they are. A log
that only grows is sent in parts (``parts``).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from ebclab.errors import RunError
from ebclab.storage.object_store import Store, Stored
from ebclab.storage.remote import RemoteFolder
from ebclab.storage.segmented_log import PART_BYTES, Part, assembled, grows, joined, new_part, taken_apart

MANIFEST = "manifest.json"
RESULT = "result.json"
CHECKPOINTS = "checkpoints"

_AT_ONCE = 16  # requests
_NOT_PULLED = "tensorboard/"
"""Grows only, and is read by people alone."""


class Mirror:
    """Brings a copy up to date, or its home.

    Args:
        remote: The folder, and whose copy of it is meant.
        without: Names of folders directly within that are not this process's business.
        store: Where the home is; None opens it.
    """

    def __init__(self, remote: RemoteFolder, *, without: tuple[str, ...] = (), store: Store | None = None) -> None:
        self.remote = remote
        self.store = store or Store(remote)
        self._without = tuple(f"{name}/" for name in without)
        self._sent: dict[str, tuple[int, int]] = {}  # name: size and time of the local file that the store has
        self._parts: dict[str, list[Part]] = {}  # name: what of a growing file is in the store for good
        self._lock = threading.Lock()

    def pull(self, kinds: Iterable[str] = ()) -> bool:
        """Make the copy what the store holds; return whether the store holds anything.

        Args:
            kinds: Which checkpoints are wanted ("last", "best", "kept"); others are not brought here.
        """
        with self._lock, _alone(self.remote.cache):
            there = {name: info for name, info in self.store.names().items() if self._is_ours(name)}
            beginnings = tuple(f"{kind}-" for kind in kinds)
            whole = _whole(there)
            checkpoints = {folder for folder in whole if folder.rpartition("/")[2].startswith(beginnings)}
            plain = [name for name in there if not _checkpoint_of(name) and not f"/{name}".count(f"/{_NOT_PULLED}")]
            self._forget_what_is_not_there(set(plain), whole)
            at_once(self._bring, plain)
            at_once(lambda folder: self._fetch(folder, there), sorted(checkpoints))
            self._sent = {name: _stamp(path) for name, path in self._local()}
            return bool(there)

    def push(self) -> int:
        """Make the store what the copy holds, as far as this mirror has brought it there; return the files uploaded."""
        with self._lock:
            local = {name: _stamp(path) for name, path in self._local()}
            changed = [name for name, stamp in local.items() if self._sent.get(name) != stamp]
            gone = [name for name in self._sent if name not in local]
            rewritten = {f"{folder}/{MANIFEST}" for folder in map(_checkpoint_of, changed) if folder}
            for name in sorted(rewritten):  # from here on that checkpoint is not whole
                self._delete(name)
            for rank in sorted({_rank(name) for name in changed}):
                at_once(lambda name: self._upload(name, local[name]), [n for n in changed if _rank(n) == rank])
            for name in sorted(gone, key=_rank, reverse=True):
                if name in self._sent:
                    self._delete(name)
            return len(changed)

    def _bring(self, name: str) -> None:
        self._parts[name] = bring(self.store, name, self.remote.cache / name)

    def _upload(self, name: str, stamp: tuple[int, int]) -> None:
        path = self.remote.cache / name
        try:
            if grows(name):
                self._upload_rest(path, name)
            else:
                self.store.upload(path, name)
        except FileNotFoundError:
            if path.exists():
                raise
            return  # deleted meanwhile; the next push deletes it there
        self._sent[name] = stamp

    def _upload_rest(self, path: Path, name: str) -> None:
        """Upload what a growing file has beyond its parts; a long rest becomes a part, whole before it is named."""
        parts = self._parts.get(name, [])
        with path.open("rb") as file:
            file.seek(sum(part.num_bytes for part in parts))
            rest = file.read()
        if len(rest) > PART_BYTES:
            part = new_part(name, rest)
            self.store.write(beside(name, part.name), rest)
            parts, rest = [*parts, part], b""
        self.store.write(name, joined(parts, rest))
        self._parts[name] = parts

    def _delete(self, name: str) -> None:
        self.store.delete(name)
        self._sent.pop(name, None)
        self._parts.pop(name, None)

    def _fetch(self, folder: str, there: dict[str, Stored]) -> None:
        """Download a checkpoint, unless the copy has it already."""
        target = self.remote.cache / folder
        manifest = self.store.read(f"{folder}/{MANIFEST}")
        names = [name for name in there if name.startswith(f"{folder}/")]
        is_complete = all(_stamp(self.remote.cache / name)[0] == there[name].num_bytes for name in names)
        if is_complete and (target / MANIFEST).read_bytes() == manifest:
            return
        try:
            wanted = {f"{folder}/{name}" for name in json.loads(manifest)["files"]}
        except (ValueError, KeyError, TypeError):
            wanted = set()  # whoever loads it says that it is damaged
        if not wanted <= set(names):
            return  # broken off by hand; not whole
        aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        try:
            for name in names:
                self.store.download(name, aside / name.removeprefix(f"{folder}/"))
            shutil.rmtree(target, ignore_errors=True)
            aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _forget_what_is_not_there(self, plain: set[str], checkpoints: set[str]) -> None:
        for name, path in list(self._local()):
            if name not in plain and _checkpoint_of(name) not in checkpoints:
                path.unlink(missing_ok=True)
                with suppress(OSError):  # the last file of its folder
                    path.parent.rmdir()

    def _local(self) -> Iterator[tuple[str, Path]]:
        """Yield the files of the copy with their names, but for hidden ones and those of others."""
        for folder, folders, files in os.walk(self.remote.cache):
            inside = Path(folder).relative_to(self.remote.cache)
            folders[:] = [name for name in sorted(folders) if self._is_ours(f"{(inside / name).as_posix()}/")]
            for name in sorted(files):
                if self._is_ours((inside / name).as_posix()):
                    yield (inside / name).as_posix(), Path(folder) / name

    def _is_ours(self, name: str) -> bool:
        return not name.startswith(self._without) and not any(part.startswith(".") for part in name.split("/"))


@contextmanager
def _alone(copy: Path) -> Iterator[None]:
    """Keep other processes of this machine from pulling into the same copy."""
    copy.mkdir(parents=True, exist_ok=True)
    with (copy / ".pull").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def whole_checkpoints(names: Iterable[str], kind: str) -> list[str]:
    """Return the names of the whole checkpoints of one kind among the files of a run, newest first."""
    folders = (folder.rpartition("/")[2] for folder in _whole(names))
    return sorted((name for name in folders if name.startswith(f"{kind}-")), reverse=True)


def _whole(names: Iterable[str]) -> set[str]:
    """Return the checkpoint folders that have a manifest."""
    return {folder for name in names if (folder := _checkpoint_of(name)) and name == f"{folder}/{MANIFEST}"}


def _checkpoint_of(name: str) -> str:
    """Return the checkpoint folder that a file belongs to; empty when it belongs to none."""
    parts = name.split("/")
    if len(parts) < 3 or parts[-3] != CHECKPOINTS:
        return ""
    return "/".join(parts[:-1])


def _rank(name: str) -> int:
    """Return when a file is uploaded: what completes others comes after them."""
    last = name.rpartition("/")[2]
    return 2 if last == RESULT else 1 if last == MANIFEST else 0


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def bring(store: Store, name: str, target: Path) -> list[Part]:
    """Copy the file ``name`` to ``target``, which appears whole; return the parts that the store has it in.

    Raises:
        RunError: A part is missing.
    """
    if not grows(name):
        store.download(name, target)
        return []
    content, pieces = store.read(name), dict[str, bytes]()
    parts, _ = taken_apart(content)

    def read(part: str) -> None:
        try:
            pieces[part] = store.read(beside(name, part))
        except FileNotFoundError as error:
            raise RunError(f"{store.address}/{name}: a part of it is missing, got no {part}; copy it back") from error

    at_once(read, [part.name for part in parts])
    store.keep(name, assembled(content, pieces.__getitem__), target)
    return parts


def beside(name: str, part: str) -> str:
    """Return where the store holds a part of the file ``name``."""
    return f"{name.rpartition('/')[0]}/{part}".lstrip("/")


def at_once(work: Callable[[str], object], names: list[str]) -> None:
    """Do ``work`` for every name, several at a time; the first error is raised when all have ended."""
    if len(names) < 2:
        for name in names:
            work(name)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
        for done in [pool.submit(work, name) for name in names]:
            done.result()
