"""Finds, identifies and reads files that may be compressed; a damaged file is reported in one sentence."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from ebclab.errors import DataError

HEADER_BYTES = 64

LARGEST = 1 << 28
"""Largest decompressed size of a file of the catalogue's datasets, bytes; the largest of them has 181 million."""

SUFFIXES = ("", ".gz", ".xz")
"""Suffixes that a stored file may have, preferred ones first."""


def find_stored(folder: Path, name: str) -> Path | None:
    """Return the file ``name`` in ``folder``, plain or with a compression suffix, or None when there is none."""
    candidates = (folder / f"{name}{suffix}" for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)


def md5_of(path: Path) -> str:
    """Return the md5 of the file as stored, in hex; it identifies a copy and does not protect against tampering."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read, got {error.strerror or error}; check the file's permissions"
        ) from error


def read_stored(path: Path, expected: Callable[[bytes], int] | None = None) -> bytes:
    """Return the content of ``path``, decompressed when its name ends in .gz or .xz.

    Args:
        expected: Returns the length of the whole content, given its first ``HEADER_BYTES``; at most one byte more is
            read, to notice files that are too long. None reads everything.
    """
    try:
        with _opened(path) as file:
            head = file.read(HEADER_BYTES)
            wanted = LARGEST if expected is None else min(expected(head) + 1, LARGEST)
            content = head + file.read(max(wanted - len(head), 0))
            if expected is None and file.read(1):
                raise DataError(f"{path}: holds more than {LARGEST:,} bytes, which no such file has; replace it")
            return content
    except EOFError as error:
        raise DataError(f"{path}: the compressed file is cut off; replace it with a complete copy") from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: the compressed file is damaged, got {error}; replace it with a good copy") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read, got {error.strerror or error}; check the file's permissions"
        ) from error


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return cast(BinaryIO, lzma.open(path, "rb")) if path.suffix == ".xz" else path.open("rb")
