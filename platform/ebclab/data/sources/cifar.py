"""Reader for CIFAR batches, of 10 or 100 classes: pickles of labels and bytes, read without running their code.

A pickle may name any function and have it called. Here the few names that a batch needs are replaced by stand-ins
that only store plain bytes, and every other name is refused; numpy itself never sees the file.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebclab.data.sources.stored_files import read_stored
from ebclab.errors import DataError

_SIDE = 32  # pixels
_ROW = 3 * _SIDE * _SIDE  # bytes of one image: red, green and blue planes


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


def read_cifar_split(paths: Sequence[Path], labels_key: str = "labels") -> tuple[Tensor, Tensor]:
    """Return images and labels of the batches ``paths``, one after the other."""
    batches = [read_cifar_batch(path, labels_key) for path in paths]
    return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches])


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
