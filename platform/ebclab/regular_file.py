"""Reads a file that is a file: no pipe that never ends, no device, no more bytes than such a file has."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of the file at ``path``; a link to a file is followed.

    Args:
        path: The file.
        limit: Most bytes that the file may have.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger; ``strerror`` says which.
    """
    _require_regular(path.stat())  # before it is opened: to open a device may do something
    with open(path, "rb", opener=_opener) as file:
        info = os.fstat(file.fileno())
        _require_regular(info)
        content = file.read(limit + 1) if info.st_size <= limit else b""
    if info.st_size > limit or len(content) > limit:
        raise OSError(errno.EFBIG, f"{max(info.st_size, limit + 1):,} bytes, more than the {limit:,} it may have")
    return content


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _require_regular(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file")
