"""A set of images in memory, which sources, delivery and evaluation exchange, and which processes can share.

Also the digests by which a run recognises its images: of their content or, for a stream, of its index and files.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebclab.errors import DataError


@dataclass(frozen=True)
class ImageSet:
    """Images with labels and stable keys.

    Attributes:
        name: Dataset name.
        images: (n, C, H, W) uint8.
        labels: (n,) int64; -1 where unknown, and for all images that may have several labels.
        keys: (n,) int64 sample keys, stable across processes and orders (the row in the dataset's own file).
        class_names: Names of the classes, by label; empty when unknown.
        mean: Channel means over the training split, in [0, 1].
        std: Channel standard deviations over the training split, in [0, 1].
        marks: (n, K) int8 for images that may have several labels: 1 if an image has the class, 0 if not, -1 if it
            counts as neither; None if an image has at most one label.
    """

    name: str
    images: Tensor
    labels: Tensor
    keys: Tensor
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    marks: Tensor | None = None

    def __len__(self) -> int:
        return self.images.shape[0]

    def rows(self, index: Tensor) -> ImageSet:
        """Return the images at ``index`` ((k,) int64 rows or (n,) bool mask), in that order."""
        marks = None if self.marks is None else self.marks[index]
        return replace(self, images=self.images[index], labels=self.labels[index], keys=self.keys[index], marks=marks)

    def class_name(self, label: int) -> str:
        """Return what a label is called on pictures and in tables."""
        if 0 <= label < len(self.class_names):
            return self.class_names[label]
        return f"class {label}" if label >= 0 else "no label"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle makes it elsewhere: of arrays, which Ray holds once in the memory of each machine."""
        tensors = (self.images, self.labels, self.keys, *([] if self.marks is None else [self.marks]))
        facts = (self.name, self.class_names, self.mean, self.std)
        return _of_arrays, (facts, *(each.contiguous().numpy() for each in tensors))


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return per-channel mean and standard deviation, in [0, 1], of (n, C, H, W) uint8 images."""
    return statistics_of_counts(level_counts(images))


def level_counts(images: Tensor) -> Tensor:
    """Return how often each byte occurs in each channel of (n, C, H, W) uint8 images, (C, 256) int64."""
    return torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(dim=1)])


def statistics_of_counts(counts: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the result of ``channel_statistics`` from the counts (C, 256) of all images.

    Computed from whole numbers: digests contain it, and the last bits of sums of floats differ between machines.
    """
    mean, std = [], []
    for row in counts.tolist():
        number, first, second = (sum(count * level**power for level, count in enumerate(row)) for power in range(3))
        mean.append(first / (255 * number))
        std.append(math.sqrt((number * second - first**2) / (255 * number) ** 2))
    return tuple(mean), tuple(std)


def read_only(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor over the memory of an array that other processes share; do not write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _of_arrays(facts: tuple[Any, ...], *arrays: np.ndarray[Any, Any]) -> ImageSet:
    """Return an image set over the memory of these arrays; do not write to it."""
    images, labels, keys, *marks = map(read_only, arrays)
    name, class_names, mean, std = facts
    return ImageSet(name, images, labels, keys, class_names, mean, std, *marks)


STREAMED = "stream-"
"""Prefix of the digest of a streamed dataset."""


def content_digest(train: ImageSet, *scored: ImageSet) -> str:
    """Return the SHA-256 of everything that a run uses of its images: pixels, labels, keys and marks of all parts.

    It covers channel statistics and class names, since views and scores depend on them, but not the dataset's name.
    """
    facts = {
        "class_names": train.class_names,
        "mean": train.mean,
        "std": train.std,
        "shapes": [tuple(part.images.shape) for part in (train, *scored)],
    }
    tensors = [t for part in (train, *scored) for t in (part.images, part.labels, part.keys, part.marks)]
    return _sha256(json.dumps(facts, sort_keys=True).encode(), [tensor for tensor in tensors if tensor is not None])


def stream_digest(*parts: tuple[Tensor, Tensor], class_names: tuple[str, ...], files_digest: str) -> str:
    """Return a digest of images that are not all read: keys and labels of all rows, and a digest of the files.

    The parts are training rows, held-out rows and, if there are any, those kept for confirming runs.
    """
    facts = {"class_names": class_names, "files": files_digest}
    start = json.dumps(facts, sort_keys=True).encode()
    return STREAMED + _sha256(start, [tensor for part in parts for tensor in part])


def short_digest(*tensors: Tensor) -> str:
    """Return a short hash of tensors: of the pixels and keys of images in memory, or of the keys and labels of rows."""
    return _sha256(b"", tensors)[:16]


def digest_of_files(files: Mapping[str, str | int]) -> str:
    """Return the SHA-256 over the names of unread files and their recorded checksums, or else their sizes."""
    return hashlib.sha256(json.dumps(sorted((name, str(each)) for name, each in files.items())).encode()).hexdigest()


def _sha256(start: bytes, tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256(start)
    for tensor in tensors:
        digest.update(tensor.contiguous().view(-1).numpy().data)
    return digest.hexdigest()


class Repeats(NamedTuple):
    """How many test images are also training images, pixel for pixel."""

    images: int
    relabelled: int  # of these, those with another label there

    def in_words(self, count: int, kind: str = "test") -> str:
        other = f", {self.relabelled:,} of them with another label" if self.relabelled else ""
        return f"{self.images:,} of {count:,} {kind} images are also training images{other}"


def repeats(train: ImageSet, test: ImageSet) -> Repeats:
    """Return how many images of a test part are in the training part too; images of another size are other ones."""
    if train.images.shape[1:] != test.images.shape[1:]:
        return Repeats(0, 0)
    some = [_some_pixels(part.images) for part in (train, test)]  # few images that differ agree in these
    labels: dict[bytes, set[int]] = defaultdict(set)
    for row in torch.isin(*some).nonzero().flatten().tolist():
        labels[_fingerprint(train.images[row])].add(int(train.labels[row]))
    again = torch.isin(*reversed(some)).nonzero().flatten().tolist()
    found = {row: known for row in again if (known := labels.get(_fingerprint(test.images[row])))}
    told = {row: known for row, known in found.items() if min(known) >= 0 and test.labels[row] >= 0}
    return Repeats(len(found), sum(int(test.labels[row]) not in known for row, known in told.items()))


def _some_pixels(images: Tensor) -> Tensor:
    """Return eight bytes of each image (n, C, H, W), from all over it, as one number, (n,) int64."""
    flat = images.flatten(1)
    places = ((torch.arange(8) + 0.5) * flat.shape[1] / 8).long()  # not in the first column, which may be black
    return flat[:, places].contiguous().view(torch.int64).flatten()


def _fingerprint(image: Tensor) -> bytes:
    return hashlib.blake2b(image.contiguous().view(-1).numpy().data, digest_size=16).digest()


def require_digest(got: str, expected: str, name: str) -> None:
    """Check that images are those of the setting ``data.digest``, which is empty if unknown."""
    if not expected or got == expected:
        return
    if got.startswith(STREAMED) != expected.startswith(STREAMED):
        how, now = ("a stream", "resident") if expected.startswith(STREAMED) else ("resident", "a stream")
        raise DataError(
            f"data.digest: the images of {name} were {how} and are {now} now, which trains on other batches; "
            f"set data.delivery={'stream' if how == 'a stream' else 'resident'}"
        )
    raise DataError(
        f"data.digest: the images of {name} are not those that these settings were recorded with, "
        f"got {got[:20]}, expected {expected[:20]}; restore them, or leave data.digest out to start another run"
    )
