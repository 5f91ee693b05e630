"""Finds, identifies and reads files that may be compressed; a damaged file is reported in one sentence."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from pathlib import Path

from ebclab.errors import DataError

SUFFIXES = ("", ".gz", ".xz")
"""Endings a stored file may have, in the order in which they are preferred."""


def find_stored(folder: Path, name: str) -> Path | None:
    """Return the file ``name`` in ``folder``, plain or with a compression suffix, or None when there is none."""
    candidates = (folder / f"{name}{suffix}" for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)


def md5_of(path: Path) -> str:
    """Return the md5 of the file as stored, in hex; it identifies a file and is no protection against tampering.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read, got {error.strerror or error}; check the file's permissions"
        ) from error


def read_stored(path: Path) -> bytes:
    """Return the content of ``path``, decompressed when its name ends in .gz or .xz.

    Raises:
        DataError: The file cannot be read, or its compressed stream is cut off or damaged.
    """
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                return file.read()
        if path.suffix == ".xz":
            with lzma.open(path, "rb") as file:
                return file.read()
        return path.read_bytes()
    except EOFError as error:
        raise DataError(f"{path}: the compressed file is cut off; replace it with a complete copy") from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: the compressed file is damaged, got {error}; replace it with a good copy") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read, got {error.strerror or error}; check the file's permissions"
        ) from error
