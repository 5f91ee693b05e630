"""Locks of files, and the lock of a run or sweep folder on a disk."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ebclab.errors import RunError
from ebclab.regular_file import own_file
from ebclab.storage import atomic

LOCK = ".lock"


@contextmanager
def held(path: Path, how: int, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    """Hold the lock of the file at ``path`` and yield its descriptor.

    A file that was deleted or replaced while it was opened or waited for is reopened: its lock would exclude no one.

    Raises:
        BlockingIOError: Another process holds the lock, and ``how`` says not to wait.
        OSError: The file cannot be opened, is not a regular file, or cannot be locked; ``strerror`` has the reason.
    """
    descriptor = _locked_file(path, how, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked_file(path: str | Path, how: int, flags: int) -> int:
    """Return the descriptor that ``held`` yields; its lock is held until it is closed."""
    while True:
        if flags & os.O_CREAT:
            atomic.make_folder(Path(path).parent)
        descriptor, is_there = own_file(path, flags), False
        try:
            _lock(descriptor, how)
            is_there = _is_at(path, descriptor)
        finally:
            if not is_there:
                os.close(descriptor)
        if is_there:
            return descriptor


def _lock(descriptor: int, how: int) -> None:
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"a file system without locks ({error.strerror})") from error


def _is_at(path: str | Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def locked(folder: Path, *, busy: str, option: str) -> Iterator[None]:
    """Create ``folder`` if needed and hold its lock; a disk that fills up meanwhile raises a RunError."""
    with ExitStack() as stack:
        try:
            stack.enter_context(_held(folder, fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT))
        except BlockingIOError as error:
            raise RunError(f"{folder}: another process {busy}; wait for it or stop it") from error
        except OSError as error:
            raise _not_written(_where(folder, error), error, option) from error
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise RunError(
                f"{folder}: the disk is full, got no space for {error.filename or 'a file'}; "
                "free some space and run the same command again"
            ) from error


def require_creatable(folder: Path, option: str) -> None:
    """Refuse a missing folder that cannot be created, before other work is done for it; nothing is left behind."""
    try:
        nearest = next(each for each in folder.absolute().parents if each.exists())
        TemporaryDirectory(prefix=f".{folder.name}-", dir=nearest).cleanup()
    except OSError as error:
        raise _not_written(folder, error, option) from error


def _not_written(place: Path, error: OSError, option: str) -> RunError:
    return RunError(f"{place}: cannot be written, got {error.strerror}; choose another folder with {option}")


@contextmanager
def kept_free(folder: Path) -> Iterator[bool]:
    """Yield whether no process holds the lock of ``folder``, which stays locked until exit."""
    with ExitStack() as stack:
        try:
            stack.enter_context(_held(folder, fcntl.LOCK_EX, os.O_RDWR))  # NFS locks no file that is open to read alone
        except BlockingIOError:
            yield False
            return
        except FileNotFoundError:  # deleted meanwhile
            pass
        except OSError as error:
            is_no_file = error.errno in (errno.ELOOP, errno.EINVAL, errno.EISDIR)
            remedy = "delete it" if is_no_file else "check its permissions"
            raise RunError(f"{_where(folder, error)}: cannot be locked, got {error.strerror}; {remedy}") from error
        yield True


def is_running(folder: Path) -> bool:
    """Return whether a process works in ``folder``; False if that cannot be determined."""
    try:
        with _held(folder, fcntl.LOCK_SH, os.O_RDONLY):  # shared: two readers must not block each other
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


@contextmanager
def _held(folder: Path, how: int, flags: int) -> Iterator[None]:
    """Lock the lock file of ``folder``, without waiting, and the folder: deleting that file does not free the folder.

    Both are needed: over a network, the lock of a folder does not exclude other machines.

    Raises:
        BlockingIOError: Another process holds one of them.
        OSError: As for ``held``. A missing lock file is no error without O_CREAT: no process has claimed the folder.
    """
    how |= fcntl.LOCK_NB
    descriptors = list[int]()
    try:
        with suppress(FileNotFoundError):
            descriptors.append(_locked_file(os.path.join(folder, LOCK), how, flags))
        descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
        try:
            fcntl.flock(descriptors[-1], how)
        except BlockingIOError:
            raise
        except OSError:  # not every file system has locks of folders
            pass
        yield
    finally:
        for descriptor in reversed(descriptors):
            os.close(descriptor)


def _where(folder: Path, error: OSError) -> Path:
    """Return the lock file if the error is about its kind, otherwise the folder."""
    return folder / LOCK if error.filename == str(folder / LOCK) else folder
