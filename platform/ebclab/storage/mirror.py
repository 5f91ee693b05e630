"""Mirror: pulls a folder in a store into a local copy, or pushes the local copy into the store; Syncer: as it changes.

The store is authoritative when a process starts (``pull``), the local copy while it works (``push``). A manifest marks
a checkpoint folder as complete: it is uploaded last and deleted first, and a checkpoint without one is ignored. An
interrupted transfer is therefore never mistaken for a complete checkpoint. Names that begin with a dot are neither
pulled nor pushed. An append-only log is uploaded in parts (``segmented_log``).

A pull downloads every file again except checkpoints, whose copies are verified by the digests of the store's manifest.
So a copy that was damaged, by a disk or by a power failure before it was synced, lasts until the next pull; copies need
no sync.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ebclab.background import logged, repeating
from ebclab.errors import InterruptedRunError, RunError
from ebclab.regular_file import file_digest
from ebclab.storage.atomic import hidden_beside
from ebclab.storage.kinds import RESULTS
from ebclab.storage.lease import Fence, FencingToken
from ebclab.storage.lock import held
from ebclab.storage.object_store import COPIES, RemoteFolder, Store, Stored
from ebclab.storage.own_folder import OpenFolder
from ebclab.storage.reading import json_value
from ebclab.storage.segmented_log import PART_BYTES, Part, grows, joined, new_part, taken_apart

MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"

_LOOKS = 10  # at a folder that changes
_AT_ONCE = 16  # concurrent requests
_LOOK_SECONDS = 1.0  # an untimed wait would not be interrupted by a Ctrl-C that CPython handled just before it
_NOT_PULLED = "tensorboard/"
"""Pushed but not pulled: no process reads it back."""

_log = logging.getLogger("ebclab.storage")

T = TypeVar("T")
R = TypeVar("R")
_Stamp = tuple[int, int, int]
"""Size, modification time in ns and inode number of a local file; a replaced file has another stamp."""


class Mirror:
    """Pulls and pushes one folder.

    Args:
        without: Names of direct subfolders that other processes sync.
        fence: Refuses a push after the folder's lease was lost; None allows every push.
    """

    def __init__(self, remote: RemoteFolder, *, without: tuple[str, ...] = (), fence: Fence | None = None) -> None:
        self.remote, self.fence = remote, fence
        self.store = Store(remote, may_change=fence.check_again if fence else None)
        self._without = tuple(f"{name}/" for name in without)
        self._sent: dict[str, _Stamp] = {}  # name: stamp of the local file whose content the store has
        self._copy: OpenFolder | None = None  # identity of the local copy's folder when it was last synced
        self._parts: dict[str, list[Part]] = {}  # name: parts of an append-only file in the store
        self._lock = threading.Lock()

    def pull(self, kinds: Iterable[str] = ()) -> bool:
        """Make the local copy equal to the store; return whether the store contains any files to sync.

        Args:
            kinds: Kinds of checkpoints to download ("last", "best", "kept"); others remain in the store.
        """
        with self._lock, _alone(self.remote.cache):
            wanted = tuple(kinds)
            for _ in range(_LOOKS):
                with suppress(FileNotFoundError):  # replaced since it was listed, by the process that trains
                    return self._pull(wanted)
            return self._pull(wanted)

    def _pull(self, kinds: tuple[str, ...]) -> bool:
        stored = {name: info for name, info in self.store.names().items() if self._is_ours(name)}
        beginnings = tuple(f"{kind}-" for kind in kinds)
        whole = _whole(stored)
        checkpoints = {folder for folder in whole if folder.rpartition("/")[2].startswith(beginnings)}
        plain = [name for name in stored if not _checkpoint_of(name) and not f"/{name}".count(f"/{_NOT_PULLED}")]
        self._delete_others(set(plain), whole)
        at_once(self._bring, plain)
        at_once(lambda folder: self._fetch(folder, stored), sorted(checkpoints))
        self._note_copy()
        return bool(stored)

    def adopt(self) -> None:
        """Treat the local copy, which was just pulled on this machine, as equal to the store."""
        with self._lock:
            self._note_copy()

    def push(self) -> int:
        """Upload changed local files and delete removed ones from the store; return the number of changed files."""
        with self._lock:
            self._require_same_copy()
            local = self._stamps()
            changed = [name for name, stamp in local.items() if self._sent.get(name) != stamp]
            gone = [name for name in self._sent if name not in local]
            for folder in {(self.remote.cache / folder).parent for folder in map(_checkpoint_of, gone) if folder}:
                if not folder.is_dir():  # this process never removes the folder of all checkpoints itself
                    raise self._removed(folder)
            if self.fence is not None:
                self.fence.check(ask=bool(changed or gone))
            rewritten = {f"{folder}/{MANIFEST}" for folder in map(_checkpoint_of, changed) if folder}
            for name in sorted(rewritten):  # from here on the checkpoint in the store is incomplete
                self._delete(name)
            for rank in sorted({_rank(name) for name in changed}):
                at_once(lambda name: self._upload(name, local[name]), [n for n in changed if _rank(n) == rank])
            for name in sorted(gone, key=_rank, reverse=True):
                if name in self._sent:
                    self._delete(name)
            return len(changed)

    def unsent(self) -> list[str]:
        """Return the names of local files whose current content is not in the store; valid during a push, too."""
        return [name for name, stamp in self._stamps().items() if self._sent.get(name) != stamp]

    def _note_copy(self) -> None:
        """Record that the local copy is now equal to the store."""
        self._sent, self._copy = self._stamps(), OpenFolder.at(self.remote.cache)

    def _require_same_copy(self) -> None:
        """Refuse a local copy that was removed or replaced: its missing files would be deleted from the store, too."""
        if self._copy is None:
            self._copy = OpenFolder.at(self.remote.cache)
        elif not self._copy.is_at(self.remote.cache):
            raise self._removed(self.remote.cache)

    def _removed(self, folder: Path) -> RunError:
        return RunError(
            f"{folder}: this machine's copy of {self.remote.address} was removed or replaced while it was worked in; "
            "nothing was deleted in the store, and the same command resumes from what is there"
        )

    def _bring(self, name: str) -> None:
        self._parts[name] = bring(self.store, name, self.remote.cache / name)

    def _upload(self, name: str, stamp: _Stamp) -> None:
        path = self.remote.cache / name
        try:
            if grows(name):
                self._upload_rest(path, name)
            else:
                self.store.upload(path, name)
        except FileNotFoundError:
            if path.exists():
                raise
            return  # deleted meanwhile; the next push deletes it in the store
        self._sent[name] = stamp

    def _upload_rest(self, path: Path, name: str) -> None:
        """Upload the rest of an append-only file, after its parts; a long rest first becomes a part of its own."""
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

    def _fetch(self, folder: str, stored: dict[str, Stored]) -> None:
        """Download a checkpoint if it is complete in the store and the local copy does not have it intact.

        Raises:
            FileNotFoundError: It is being replaced in the store.
        """
        target, beginning = self.remote.cache / folder, f"{folder}/"
        manifest = self.store.read(beginning + MANIFEST)
        names = {name.removeprefix(beginning): name for name in stored if name.startswith(beginning)}
        digests = _digests(manifest)
        if not digests.keys() <= names.keys():
            return  # a file is missing: the checkpoint is incomplete
        is_there = all(_stamp(target / name)[0] == stored[whole].num_bytes for name, whole in names.items())
        damage = ""
        if is_there and (target / MANIFEST).read_bytes() == manifest:
            damage = _damage(target, digests)
            if not damage:
                return
        aside = hidden_beside(target)
        try:
            for name, whole in names.items():
                self.store.download(whole, aside / name)
            damage_there = _damage(aside, digests)
            if damage_there and self.store.read(beginning + MANIFEST) != manifest:
                raise FileNotFoundError(f"{folder}: replaced while it was downloaded")
            shutil.rmtree(target, ignore_errors=True)
            aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        where = f"{self.store.address}: {folder}"
        if damage_there:
            _log.warning("%s is damaged in the store itself, %s; copy it back there", where, damage_there)
        elif damage:
            _log.warning("%s was damaged in this machine's copy, %s; it was fetched again", where, damage)

    def _delete_others(self, plain: set[str], checkpoints: set[str]) -> None:
        """Delete local files that are neither among ``plain`` nor in one of ``checkpoints``."""
        for name, path in list(self._local()):
            if name not in plain and _checkpoint_of(name) not in checkpoints:
                path.unlink(missing_ok=True)
                with suppress(OSError):  # the folder contains other files
                    path.parent.rmdir()

    def _stamps(self) -> dict[str, _Stamp]:
        return {name: _stamp(path) for name, path in self._local()}

    def _local(self) -> Iterator[tuple[str, Path]]:
        """Yield names and paths of local files, except hidden ones and those that other processes sync."""
        for folder, folders, files in os.walk(self.remote.cache):
            inside = Path(folder).relative_to(self.remote.cache)
            folders[:] = [name for name in sorted(folders) if self._is_ours(f"{(inside / name).as_posix()}/")]
            for name in sorted(files):
                if self._is_ours((inside / name).as_posix()):
                    yield (inside / name).as_posix(), Path(folder) / name

    def _is_ours(self, name: str) -> bool:
        return not name.startswith(self._without) and not any(part.startswith(".") for part in name.split("/"))


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Prevent other processes of this machine from pulling into the same copy (RunError if locks are unsupported)."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(cache / ".pull", fcntl.LOCK_EX))
        except OSError as error:
            raise RunError(
                f"{cache}: cannot be written, got {error.strerror}; name another folder in {COPIES}"
            ) from error
        yield


def whole_checkpoints(names: Iterable[str], kind: str) -> list[str]:
    """Return the names of the complete checkpoints of one kind among the files of a run, newest first."""
    folders = (folder.rpartition("/")[2] for folder in _whole(names))
    return sorted((name for name in folders if name.startswith(f"{kind}-")), reverse=True)


def _whole(names: Iterable[str]) -> set[str]:
    """Return the checkpoint folders that have a manifest."""
    return {folder for name in names if (folder := _checkpoint_of(name)) and name == f"{folder}/{MANIFEST}"}


def _checkpoint_of(name: str) -> str:
    """Return the checkpoint folder that a file belongs to; empty if there is none."""
    parts = name.split("/")
    if len(parts) < 3 or parts[-3] != CHECKPOINTS:
        return ""
    return "/".join(parts[:-1])


def _digests(manifest: bytes) -> dict[str, object]:
    """Return the digests of a checkpoint's files by name; empty if its manifest is damaged, as loading it will say."""
    try:
        digests = json_value(manifest)["files"]
    except (ValueError, KeyError, TypeError):
        return {}
    return digests if isinstance(digests, dict) else {}


def _damage(folder: Path, digests: Mapping[str, object]) -> str:
    """Return what is wrong with the files of a checkpoint; empty if they are intact."""
    wrong = [name for name, digest in digests.items() if file_digest(folder / name) != digest]
    return f"got other content of {', '.join(wrong)} than its manifest says" if wrong else ""


def _rank(name: str) -> int:
    """Return the rank of a file in the upload order: a file that marks others as complete comes after them."""
    last = name.rpartition("/")[2]
    return 2 if last in RESULTS else 1 if last == MANIFEST else 0


def _stamp(path: Path) -> _Stamp:
    try:
        info = path.stat()
    except FileNotFoundError:
        return -1, -1, -1
    return info.st_size, info.st_mtime_ns, info.st_ino


def bring(store: Store, name: str, target: Path) -> list[Part]:
    """Download the file ``name`` to ``target`` atomically; return its parts in the store, if it is a growing log."""
    if not grows(name):
        store.download(name, target)
        return []
    try:
        parts, rest = taken_apart(store.read(name))
    except ValueError as error:
        raise RunError(f"{store.address}/{name}: damaged, {error}; copy it back") from error

    def read(part: Part) -> bytes:
        try:
            return store.read(beside(name, part.name))
        except FileNotFoundError as error:
            raise RunError(
                f"{store.address}/{name}: a part of it is missing, got no {part.name}; copy it back"
            ) from error

    store.keep(name, b"".join([*at_once(read, parts), rest]), target)
    return parts


def beside(name: str, part: str) -> str:
    """Return the name of a part of the file ``name`` in the store."""
    return f"{name.rpartition('/')[0]}/{part}".lstrip("/")


def at_once(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return what ``work`` returns for every item, from threads; raise the first one's error when all have ended.

    Neither Ctrl-C nor process exit waits for a request that gets no response.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    left, next_one = iter(range(len(items))), threading.Lock()
    made, errors = dict[int, R](), dict[int, BaseException]()

    def work_through() -> None:
        while True:
            with next_one:
                number = next(left, None)
            if number is None:
                return
            try:
                made[number] = work(items[number])
            except BaseException as error:
                errors[number] = error

    threads = [threading.Thread(target=work_through, daemon=True) for _ in range(min(_AT_ONCE, len(items)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
    if errors:
        raise errors[min(errors)]
    return [made[number] for number in range(len(items))]


_PUSH_SECONDS = 5.0  # between checks whether a push is due
_DOWNLOAD_SECONDS = 2.0  # between checks for changes by other processes
_LAST_SECONDS = 5.0  # for the final push of a process that was requested to stop


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

    with repeating(look, _DOWNLOAD_SECONDS, "a look into the store"):
        yield
    Mirror(remote).pull()
