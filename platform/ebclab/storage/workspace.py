"""The working folder of a run or sweep: on a disk, or in an object store with a local copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from ebclab.config.addresses import absolute
from ebclab.config.names import is_folder_name, other_folder
from ebclab.config.yaml_text import Plain, load_yaml_file
from ebclab.errors import RunError
from ebclab.storage.kinds import Kind
from ebclab.storage.lease import NAME, Fence, FencingToken, held_by, leased, require_free
from ebclab.storage.lock import is_running, locked, require_creatable
from ebclab.storage.mirror import MANIFEST, Mirror, Syncer, downloading, synced
from ebclab.storage.object_store import RemoteFolder, Role, Store, remote_at, remote_in, send
from ebclab.storage.own_folder import own_folder
from ebclab.storage.signal_file import LocalSignal, SignalFile, StoredSignal

W = TypeVar("W", bound="Workspace")


@dataclass(frozen=True)
class Workspace:
    """A folder to which one process at a time writes."""

    path: Path  # absolute path of the folder, or of this process's local copy of it
    remote: RemoteFolder | None = None  # the folder in an object store; None if the folder is on a disk

    kind: ClassVar[Kind]  # what the folder is

    @classmethod
    def at(cls, place: str | Path | RemoteFolder) -> Self:
        """Return the workspace at a path, at an address, or of a remote folder."""
        remote = place if isinstance(place, RemoteFolder) else remote_at(place)
        return cls(absolute(str(place))) if remote is None else cls(remote.cache, remote)

    @classmethod
    def named(cls, parent: str | Path, name: str) -> Self:
        """Return the workspace ``name`` in a folder, or at the address of one."""
        return cls.at(remote_in(parent, name) or Path(parent) / name)

    def of(self, role: Role) -> Self:
        """Return the same workspace with the local copy of processes of ``role``."""
        return self if self.remote is None else type(self).at(self.remote.of(role))

    @property
    def address(self) -> str:
        """The path or the address, in the form that all commands accept."""
        return self.remote.address if self.remote else str(self.path)

    def address_of(self, path: Path) -> str:
        """Return the path or address of a file directly in the folder, for messages."""
        return (self.remote / path.name).address if self.remote else str(path)

    @property
    def plan(self) -> Path:
        """The file that makes the folder one of its kind: the plan of the work, or the settings of a run."""
        return self.path / self.kind.settings

    @property
    def result(self) -> Path:
        """The result; written last, so that it exists only when the work has finished."""
        return self.path / self.kind.result

    @property
    def page(self) -> Path:
        """The page of the result, where one is written beside it."""
        return self.result.with_suffix(".html")

    def has_plan(self, *, resume: bool = False) -> bool:
        """Return whether an earlier launch has written its plan; if not, refuse files of another kind in the folder.

        A launch that ended before leaves empty folders and hidden files, and in a sweep the traceback of a trial. If
        the user asked to ``resume``, a missing plan is an error.
        """
        if self.plan.exists():
            return True
        if resume:
            raise RunError(
                f"{self.address}: nothing to resume, no {self.kind.name} of this name; leave --resume out to start one"
            )
        files = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_symlink() or not path.is_dir())
        visible = (file for file in files if not any(part.startswith(".") for part in file.parts))
        leftover, is_file = self.kind.leftover, self.path.exists() and not self.path.is_dir()
        if is_file or not all(leftover and file.is_relative_to(leftover) for file in visible):
            raise RunError(
                f"{self.address}: the folder holds something that is not a {self.kind.name}; "
                f"choose another {self.kind.chosen_by}"
            )
        return False

    def require_plan(self) -> None:
        """Require the file that makes the folder one of its kind."""
        if not self.plan.is_file():
            made = f"`ebclab {self.kind.command}` makes {self.kind.name}s"
            remedy = other_folder(self.address, self.plan.name, made)
            raise RunError(f"{self.address}: no {self.kind.name} here, {self.plan.name} is missing; {remedy}")

    def load_plan(self) -> Plain:
        """Return the plain values in the plan's file, which is YAML."""
        self.require_plan()
        return load_yaml_file(self.plan, self.where_of_plan)

    @property
    def where_of_plan(self) -> str:
        """The folder and the plan's file, for messages."""
        return f"{self.address}: {self.plan.name}"

    def own(self, *names: str) -> Path:
        """Return a folder within this one, which may be missing."""
        return own_folder(self.path, *names)

    @property
    def inside(self) -> str:
        """Path or address of the subfolder that other processes sync."""
        return (self.remote / self.kind.inside).address if self.remote else str(self.own(self.kind.inside))

    def member(self, folder: type[W], name: str, what: str, role: Role | None = None) -> W:
        """Return a workspace within ``inside``, with the local copy of ``role``; None means the role of this one."""
        if not is_folder_name(name):
            raise RunError(
                f"{self.address}: not the name of {what}, got {name!r}; restore the {self.kind.name}'s files"
            )
        if self.remote is None:
            return folder(self.own(self.kind.inside, name))
        return folder.at(self.remote.of(role or self.remote.role) / self.kind.inside / name)

    def drop_copy(self) -> None:
        """Delete this process's copy: the store has everything, and a disk cannot hold all runs of a sweep."""
        if self.remote is not None:
            shutil.rmtree(self.path, ignore_errors=True)

    def pull(self, kinds: tuple[str, ...] = ()) -> Self:
        """Make the local copy equal to the store, with checkpoints of ``kinds``; return this workspace."""
        if self.remote is not None:
            _mirror(self.remote, self.kind).pull(kinds)
        return self

    def pull_free(self, kinds: tuple[str, ...] = ()) -> Self:
        """Do what ``pull`` does, unless another process holds the folder: before a claim, which pulls again."""
        self.require_free()
        return self.pull(kinds)

    def send(self, *names: str) -> None:
        """Upload files of the local copy; without names, all of them. No other files in the store are changed."""
        if self.remote is None:
            return
        if names:
            send(self.remote, *names)
        else:
            _mirror(self.remote, self.kind).push()

    def clear_store(self, token: FencingToken | None = None) -> None:
        """Delete the folder's files in the store in the order of ``deletion_rank``.

        A folder on a disk is left unchanged.
        """
        if self.remote is not None:
            store = Store(self.remote, may_change=Fence(self.remote, token).check_again if token else None)
            for name in sorted(store.names(), key=self.deletion_rank):
                store.delete(name)

    def deletion_rank(self, name: str) -> int:
        """Return the rank of a file in the order of deletion: result, manifests, others, settings, lease."""
        firsts = 0 if name == self.kind.result else 1 if name.endswith(MANIFEST) else 2
        return 4 if name == NAME else 3 if name == self.kind.settings else firsts

    def remove(self, token: FencingToken | None = None) -> None:
        """Delete the folder, in the store and on the disk."""
        self.clear_store(token)
        shutil.rmtree(self.path, ignore_errors=True)  # NFS keeps a lock file that is open, and with it the folder

    def signal(self, name: str) -> SignalFile:
        """Return the signal file ``name``, with which processes that work in the folder communicate."""
        return StoredSignal(self.remote, name) if self.remote else LocalSignal(self.path / name)

    def downloading(self, name: str) -> AbstractContextManager[None]:
        """Download the file ``name``, which another process writes, every few seconds, and all files at exit."""
        return nullcontext() if self.remote is None else downloading(self.remote, name)

    def require_free(self) -> None:
        """Refuse a folder in a store that another process holds, before the local copy is modified.

        A folder on a disk has no local copy that a pull could overwrite; ``claim`` performs the check there.
        """
        if self.remote is not None:
            require_free(self.remote, self.kind.busy)

    def require_creatable(self) -> None:
        """Refuse a missing folder on a disk that ``claim`` could not create, before images are read."""
        if self.remote is None and not self.path.exists():
            require_creatable(self.path, self.kind.option)

    @property
    def is_held(self) -> bool:
        """Whether a process works in the folder now."""
        return bool(held_by(self.remote)) if self.remote else is_running(self.path)

    @contextmanager
    def claim(self, kinds: tuple[str, ...] = ()) -> Iterator[Syncer]:
        """Create the folder if needed, hold it exclusively for this process, and sync it until exit.

        The lease excludes processes on other machines, the lock those on this one. The final push precedes the
        release of the lock and the lease.
        """
        with ExitStack() as stack:
            lease = stack.enter_context(leased(self.remote, self.kind.busy)) if self.remote is not None else None
            stack.enter_context(locked(self.path, busy=self.kind.busy, option=self.kind.option))
            if self.remote is None or lease is None:
                yield Syncer()
                return
            mirror = _mirror(self.remote, self.kind, lease.fence)
            mirror.pull(kinds)  # not before the lease: until then another process may still write
            yield stack.enter_context(synced(mirror))

    @contextmanager
    def sync(self, token: FencingToken | None) -> Iterator[Syncer]:
        """Sync a folder that this process has just pulled and whose lease its launching process holds."""
        if self.remote is None:
            yield Syncer()
            return
        fence = Fence(self.remote, token) if token is not None else None
        mirror = _mirror(self.remote, self.kind, fence)
        mirror.adopt()
        with synced(mirror) as syncer:
            yield syncer


def _mirror(remote: RemoteFolder, kind: Kind, fence: Fence | None = None) -> Mirror:
    return Mirror(remote, without=(kind.inside,) if kind.inside else (), fence=fence)
