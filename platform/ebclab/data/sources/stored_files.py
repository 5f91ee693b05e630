"""Readers of the catalogue's files but CIFAR's pickles: compressed files, IDX (of MNIST and Fashion-MNIST), and digits.

A damaged file is reported in one sentence. An IDX file is: two zero bytes, a type code, the number of dimensions, each
dimension as a big-endian 32-bit integer, then the elements. Only unsigned bytes (code 0x08) are read.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
import torch
from torch import Tensor

from ebclab.data.hashing import hash_words, unit_interval
from ebclab.errors import DataError

HEADER_BYTES = 64

LARGEST = 1 << 28
"""Largest decompressed size of a file of the catalogue's datasets, bytes; the largest of them has 181 million."""

_UNSIGNED_BYTE = 0x08

_SPLIT_SALT = 0x646967697473  # salt of the fixed split of digits; other uses of the keys have their own
_TEST_RATE = 0.2
_WHITE = 16  # scikit-learn stores counts 0..16
_FILE = "datasets/data/digits.csv.gz"  # where the package keeps them


def md5_of(path: Path) -> str:
    """Return the md5 of the file as stored, in hex; it identifies a copy and does not protect against tampering."""
    with _readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def read_stored(path: Path, expected: Callable[[bytes], int] | None = None) -> bytes:
    """Return the content of ``path``, decompressed when its name ends in .gz or .xz.

    Args:
        expected: Returns the length of the whole content, given its first ``HEADER_BYTES``; at most one byte more is
            read, to notice files that are too long. None reads everything.
    """
    with _readable(path), _opened(path) as file:
        head = file.read(HEADER_BYTES)
        wanted = LARGEST if expected is None else min(expected(head) + 1, LARGEST)
        content = head + file.read(max(wanted - len(head), 0))
        if expected is None and file.read(1):
            raise DataError(f"{path}: holds more than {LARGEST:,} bytes, which no such file has; replace it")
        return content


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Make errors of a stored file into a DataError."""
    try:
        yield
    except EOFError as error:
        raise DataError(f"{path}: the compressed file is cut off; replace it with a complete copy") from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: the compressed file is damaged, got {error}; replace it with a good copy") from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be read, got {reason}; check the file's permissions") from error


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return cast(BinaryIO, lzma.open(path, "rb")) if path.suffix == ".xz" else path.open("rb")


def read_idx(path: Path, num_dimensions: int) -> Tensor:
    """Return the uint8 tensor stored in a file, plain or compressed: of 3 dimensions for images, 1 for labels."""
    magic = bytes((0, 0, _UNSIGNED_BYTE, num_dimensions))

    def promised(head: bytes) -> int:
        """Return the length that the header states; without a valid header, nothing more is read."""
        if head[:4] != magic or len(head) < 4 + 4 * num_dimensions:
            return 0
        shape: tuple[int, ...] = struct.unpack_from(f">{num_dimensions}I", head, 4)
        return 4 + 4 * num_dimensions + math.prod(shape)

    content = bytearray(read_stored(path, promised))
    if content[:4] != magic:
        start = content[:4].hex(" ") or "an empty file"
        raise DataError(
            f"{path}: not an IDX file of unsigned bytes with {num_dimensions} dimensions, got {start}; "
            f"it must start with {magic.hex(' ')}"
        )
    header_size = 4 + 4 * num_dimensions
    if len(content) < header_size:
        raise DataError(f"{path}: the header is cut off, got {len(content)} bytes; expected at least {header_size}")
    shape = struct.unpack_from(f">{num_dimensions}I", content, 4)
    expected = header_size + math.prod(shape)
    if len(content) != expected:
        state = "cut off" if len(content) < expected else "longer than its header says"
        got = f"{len(content)} bytes" if len(content) < expected else f"at least {len(content)} bytes"
        raise DataError(f"{path}: the file is {state}, got {got}; expected {expected} for shape {shape}")
    if expected == header_size:
        raise DataError(f"{path}: the file holds nothing, got shape {shape}; expected at least one element")
    return torch.frombuffer(content, dtype=torch.uint8, offset=header_size).view(shape)


def read_idx_split(paths: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """Return images (n, 1, H, W) uint8 and labels (n,) int64 of one split, of its image file and its label file."""
    image_path, label_path = paths
    return read_idx(image_path, 3).unsqueeze(1), read_idx(label_path, 1).long()


def read_digits(split: Literal["train", "test"]) -> tuple[Tensor, Tensor, Tensor]:
    """Return images (n, 1, 8, 8) uint8, labels (n,) int64 and keys (n,) int64 of one split.

    The source has no split of its own: a fifth of the images, chosen by hash of the row, is the test set,
    the same on every machine.
    """
    table = _read_table()
    counts = torch.from_numpy(table[:, :-1]).reshape(-1, 1, 8, 8)
    images, labels = (counts * (255 / _WHITE)).round().to(torch.uint8), torch.from_numpy(table[:, -1]).long()
    keys = torch.arange(len(labels))
    in_test = unit_interval(hash_words(_SPLIT_SALT, keys)) < _TEST_RATE
    chosen = in_test if split == "test" else ~in_test
    return images[chosen], labels[chosen], keys[chosen]


def _read_table() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return an image a row, (1797, 65): 64 counts, then the label.

    scikit-learn's file is read directly, because importing the package takes every process most of a second.
    """
    package = importlib.util.find_spec("sklearn")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        if (file := Path(folder, _FILE)).is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # for versions that have the file elsewhere

    counts, labels = load_digits(return_X_y=True)
    return np.column_stack([counts, labels])
