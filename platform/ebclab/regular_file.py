"""Reads only regular files up to a size limit; refuses pipes, which may never end, and devices."""

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
        path: The file.
        limit: Maximum size of the file, bytes.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger; ``strerror`` has the reason.
    """
    with open_regular(path, limit) as file:
        content = file.read(limit + 1)
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
