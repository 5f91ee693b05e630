"""Opens only regular files: to read them up to a size limit, or as a file of our own, to lock it or append to it.

Pipes, which may never end, and devices are refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of the file at ``path``; symbolic links are followed.

    Args:
        limit: Maximum size of the file, bytes.
    """
    with open_regular(path, limit) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)  # not limit + 1, which asks for so much memory
        if len(content) > size:  # the file has grown
            content += file.read(limit + 1 - len(content))
    _require_at_most(limit, len(content))
    return content


@contextmanager
def open_regular(path: Path, limit: int) -> Iterator[BufferedReader]:
    """Open the file at ``path`` for reading; arguments and errors as in ``read_regular``."""
    _require_regular(path.stat())  # before opening it: opening a device may have side effects
    with open(path, "rb", opener=_opener) as file:
        info = os.fstat(file.fileno())
        _require_regular(info)
        _require_at_most(limit, info.st_size)
        yield file


def own_file(path: str | Path, flags: int) -> int:
    """Return a descriptor of a file of our own, for a lock or for appending; also an ``opener`` for ``open``.

    The author of the folder may have put anything there: a symbolic link is not followed, a pipe not waited for.

    Args:
        flags: As for ``os.open``.
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


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _require_regular(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file")
