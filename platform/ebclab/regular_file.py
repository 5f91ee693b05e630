"""Opens only regular files: to read them up to a size limit, or as a file of our own, to lock it or append to it.

Pipes, which may never end, and devices are refused.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

_BLOCK = 1 << 16  # bytes read at once of what follows
_UNLIMITED = 1 << 50  # bytes


def read_regular(path: str | Path, limit: int) -> bytes:
    """Return the content of the file at ``path``, of at most ``limit`` bytes; symbolic links are followed."""
    descriptor, size = _opened(path, limit)
    try:  # without a file object, which takes as long as reading a small file
        content = os.read(descriptor, size + 1)  # not limit + 1, which asks for so much memory
        while len(content) != size and len(content) <= limit:  # the file has grown, or comes in parts
            if not (more := os.read(descriptor, _BLOCK)):
                break
            content += more
    finally:
        os.close(descriptor)
    _require_at_most(limit, len(content))
    return content


@contextmanager
def open_regular(path: str | Path, limit: int) -> Iterator[BufferedReader]:
    """Open the file at ``path`` for reading; arguments and errors as in ``read_regular``."""
    with open(_opened(path, limit)[0], "rb") as file:
        yield file


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, of any size."""
    with open_regular(path, _UNLIMITED) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opened(path: str | Path, limit: int) -> tuple[int, int]:
    """Return a descriptor to read from, and the size of the file in bytes."""
    _require_regular(os.stat(path))  # before opening it: opening a device may have side effects
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        _require_regular(info)
        _require_at_most(limit, info.st_size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, info.st_size


def own_file(path: str | Path, flags: int) -> int:
    """Return a descriptor of a file of our own, for a lock or for appending; also an ``opener`` for ``open``.

    The author of the folder may have put anything there: a symbolic link is not followed, a pipe not waited for.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "a symbolic link, not a file", str(path)) from None
    try:
        _require_regular(os.fstat(descriptor))
    except OSError as error:
        os.close(descriptor)
        error.filename = str(path)
        raise
    return descriptor


def _require_at_most(limit: int, num_bytes: int) -> None:
    if num_bytes > limit:
        raise OSError(errno.EFBIG, f"{num_bytes:,} bytes, more than the {limit:,} it may have")


def _require_regular(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file")
