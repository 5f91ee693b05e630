"""Loads the datasets of the catalogue: finds their files, recognises which copy they are, reads and checks them.

Files may be compressed. They are IDX (of MNIST and Fashion-MNIST), CIFAR's pickles, and scikit-learn's of digits.

A damaged file is reported in one sentence. An IDX file is: two zero bytes, a type code, the number of dimensions, each
dimension as a big-endian 32-bit integer, then the elements. Only unsigned bytes (code 0x08) are read.

A CIFAR batch is a pickle of labels and bytes, which may name any function and have it called. The few names that a
batch needs are replaced by stand-ins that only store plain bytes, and every other name is refused; numpy itself never
sees the file.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import logging
import lzma
import math
import pickle
import pickletools
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from ebclab.data.hashing import hash_words, unit_interval
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.sources.catalogue import Dataset, Release, Split, data_root, find_stored, missing_files
from ebclab.data.sources.location import tell_once
from ebclab.errors import DataError

_log = logging.getLogger("ebclab.data")

LARGEST = 1 << 28
"""Largest decompressed size of a file of the catalogue's datasets, bytes; the largest of them has 181 million."""

_UNSIGNED_BYTE = 0x08

_SIDE = 32  # pixels of CIFAR
_ROW = 3 * _SIDE * _SIDE  # bytes of one image: red, green and blue planes

_SPLIT_SALT = 0x646967697473  # salt of the fixed split of digits; other uses of the keys have their own
_TEST_RATE = 0.2
_WHITE = 16  # scikit-learn stores counts 0..16
_FILE = "datasets/data/digits.csv.gz"  # where the package keeps them


def load_stored(dataset: Dataset, root: str | None, split: Split) -> ImageSet:
    """Return a split of a dataset of the catalogue, with the training split's statistics; recognise the copy."""
    paths = _require_files(dataset, root, split)
    train_paths = paths if split == "train" else _require_files(dataset, root, "train")
    images, labels, keys = _read(dataset, split, paths)
    release = _release_of(dataset, paths)
    if release is not None:
        _log.info("%s %s: known checksums, copy: %s", dataset.name, split, release.name)
    elif paths:  # none are needed of what is embedded
        folder, files = paths[0].parent, ", ".join(path.name for path in paths)
        tell_once(f"{dataset.name} {split}: checksums not known, accepted unchecked: {files} in {folder}")
    train_release = release if split == "train" else _release_of(dataset, train_paths)
    if train_release is not None and train_release.mean is not None and train_release.std is not None:
        mean, std = train_release.mean, train_release.std
    else:
        mean, std = channel_statistics(images if split == "train" else _read(dataset, "train", train_paths)[0])
    return ImageSet(dataset.name, images, labels, keys, dataset.class_names, mean, std)


def _require_files(dataset: Dataset, root: str | None, split: Split) -> list[Path]:
    folder = data_root(root) / dataset.folder
    if missing := missing_files(dataset, root, split):
        raise DataError(
            f"data.root: {dataset.name} is not complete in {folder}, got no {', '.join(missing)} (plain, .gz or .xz); "
            f"run `ebclab data fetch {dataset.name} --data-root {data_root(root)}`"
        )
    return [path for name in dataset.files[split] if (path := find_stored(folder, name))]


def _read(dataset: Dataset, split: Split, paths: list[Path]) -> tuple[Tensor, Tensor, Tensor]:
    if not dataset.folder:
        images, labels, keys = read_digits(split)
    else:
        if dataset.labels_key:
            batches = [read_cifar_batch(path, dataset.labels_key) for path in paths]
            images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        else:
            images, labels = read_idx(paths[0], 3).unsqueeze(1), read_idx(paths[1], 1).long()
        keys = torch.arange(len(labels))
    where = f"{paths[0].parent if paths else dataset.name} ({split})"
    if len(images) != len(labels):
        raise DataError(f"{where}: images and labels must be as many, got {len(images)} and {len(labels)}")
    low, high, last = int(labels.min()), int(labels.max()), len(dataset.class_names) - 1
    if low < 0 or high > last:
        raise DataError(f"{where}: labels must name classes, got {low} to {high}; expected 0 to {last}")
    return images, labels, keys


def _release_of(dataset: Dataset, paths: list[Path]) -> Release | None:
    sums = {path.name.removesuffix(".gz").removesuffix(".xz"): md5_of(path) for path in paths}
    every = (each for each in dataset.releases if all(md5 in each.md5[name] for name, md5 in sums.items()))
    return next(every, None)


def md5_of(path: Path) -> str:
    """Return the md5 of the file as stored, in hex; it identifies a copy and does not protect against tampering."""
    with _readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def read_stored(path: Path) -> bytes:
    """Return the content of ``path``, decompressed when its name ends in .gz or .xz, of at most ``LARGEST`` bytes."""
    with _readable(path), _opened(path) as file:
        content = file.read(LARGEST)
        if file.read(1):
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
    """Return the uint8 tensor stored in a file, plain or compressed: of 3 dimensions for images, 1 for labels.

    No more is read than the header promises, but for one byte, which tells that the file is too long.
    """
    magic, header_size = bytes((0, 0, _UNSIGNED_BYTE, num_dimensions)), 4 + 4 * num_dimensions
    with _readable(path), _opened(path) as file:
        header = file.read(header_size)
        if header[:4] != magic:
            start = header[:4].hex(" ") or "an empty file"
            raise DataError(
                f"{path}: not an IDX file of unsigned bytes with {num_dimensions} dimensions, got {start}; "
                f"it must start with {magic.hex(' ')}"
            )
        if len(header) < header_size:
            raise DataError(f"{path}: the header is cut off, got {len(header)} bytes; expected at least {header_size}")
        shape: tuple[int, ...] = struct.unpack_from(f">{num_dimensions}I", header, 4)
        content = bytearray(file.read(min(math.prod(shape) + 1, LARGEST)))
    expected, got = header_size + math.prod(shape), header_size + len(content)
    if got != expected:
        state, at_least = ("cut off", "") if got < expected else ("longer than its header says", "at least ")
        raise DataError(
            f"{path}: the file is {state}, got {at_least}{got} bytes; expected {expected} for shape {shape}"
        )
    if not content:
        raise DataError(f"{path}: the file holds nothing, got shape {shape}; expected at least one element")
    return torch.frombuffer(content, dtype=torch.uint8).view(shape)


def read_digits(split: Split) -> tuple[Tensor, Tensor, Tensor]:
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


@cache
def _read_table() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return an image a row, (1797, 65): 64 counts, then the label; who asks again gets the same array.

    scikit-learn's file is read directly, because importing the package takes every process most of a second.
    """
    package = importlib.util.find_spec("sklearn")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        if (file := Path(folder, _FILE)).is_file():
            return np.loadtxt(file, delimiter=",")  # 27 ms, and a small run asks for it seven times
    from sklearn.datasets import load_digits  # for versions that have the file elsewhere

    counts, labels = load_digits(return_X_y=True)
    return np.column_stack([counts, labels])


def read_cifar_batch(path: Path, labels_key: str = "labels") -> tuple[Tensor, Tensor]:
    """Return images (n, 3, 32, 32) uint8 and labels (n,) int64 of one batch file, plain or compressed (.gz, .xz).

    Labels are called ``labels`` in CIFAR-10, fine_labels or coarse_labels in CIFAR-100.
    """
    batch = _unpickle(path)
    if not isinstance(batch, dict) or not {"data", labels_key} <= batch.keys():
        kind = f"keys {sorted(map(str, batch))}" if isinstance(batch, dict) else type(batch).__name__
        raise DataError(f"{path}: not a CIFAR batch, got {kind}; expected a dictionary with 'data' and {labels_key!r}")
    array, labels = batch["data"], batch[labels_key]
    if not isinstance(array, _ByteArray) or len(array.shape) != 2 or array.shape[1] != _ROW:
        content = array.shape if isinstance(array, _ByteArray) else type(array).__name__
        raise DataError(f"{path}: 'data' does not hold images, got {content}; expected bytes of shape (n, {_ROW})")
    if not isinstance(labels, list) or not all(type(label) is int and abs(label) < 2**31 for label in labels):
        raise DataError(f"{path}: {labels_key!r} is not a list of class numbers, got a {type(labels).__name__}")
    if not len(labels) == array.shape[0] > 0:
        counts = f"{array.shape[0]} and {len(labels)}"
        raise DataError(f"{path}: there must be as many images as labels and at least one, got {counts}")
    return array.tensor().reshape(-1, 3, _SIDE, _SIDE), torch.tensor(labels, dtype=torch.int64)


class _Refused(Exception):  # noqa: N818  (a verdict, turned into a DataError at once)
    """The pickle asks for a name that a batch of numbers does not need; the text is that name."""


class _ByteType:
    """Stands in for ``numpy.dtype``; a batch holds unsigned bytes only."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", "|u1"):
            raise _Refused(f"numbers of type {code!r}")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment, which mean nothing for single bytes."""


class _ByteArray:
    """Stands in for ``numpy.ndarray``: the shape and the bytes that the pickle gives it."""

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = ()
        self.content = bytearray()
        self.by_columns = False

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, bytes | str]) -> None:
        _, shape, element, self.by_columns, content = state
        if not isinstance(content, bytes | str):  # bytearray(n) takes n bytes
            raise ValueError(f"an array of {type(content).__name__} in place of bytes")
        self.shape = tuple(map(int, shape))
        self.content = bytearray(content.encode("latin1") if isinstance(content, str) else content)
        if not isinstance(element, _ByteType) or math.prod(self.shape) != len(self.content) or min(shape) < 0:
            raise ValueError(f"{len(self.content)} bytes do not fill an array of shape {self.shape}")

    def tensor(self) -> Tensor:
        """Return the array as uint8; it must not be empty."""
        flat = torch.frombuffer(self.content, dtype=torch.uint8)
        return flat.view(self.shape[::-1]).mT if self.by_columns else flat.view(self.shape)


def _new_array(subtype: object, *_: object) -> _ByteArray:
    if subtype is not _ByteArray:
        raise _Refused("an array of unknown type")
    return _ByteArray()


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """Stand in for ``_codecs.encode``, with which Python 3 writes bytes into old pickles."""
    if encoding != "latin1":
        raise _Refused(f"_codecs.encode to {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): _ByteArray,
    ("numpy", "dtype"): _ByteType,
    ("_codecs", "encode"): _latin1_bytes,
}


class _NumbersOnly(pickle.Unpickler):
    """Unpickles built-in values and arrays of unsigned bytes, nothing else."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[module, name]


def _unpickle(path: Path) -> Any:
    content = read_stored(path)
    try:
        for operation, argument, _ in pickletools.genops(content):  # the reader makes room for the highest number
            if "PUT" in operation.name and argument is not None and int(argument) > len(content):
                raise ValueError(f"{operation.name} {argument} in {len(content):,} bytes")
        return _NumbersOnly(io.BytesIO(content), encoding="latin1").load()
    except _Refused as error:
        raise DataError(f"{path}: refused, it asks for more than numbers, got {error}; use a copy you trust") from error
    except Exception as error:  # damaged input can raise nearly anything, as the pickle module documents
        raise DataError(f"{path}: not a readable pickle, got {type(error).__name__}: {error}; replace it") from error
