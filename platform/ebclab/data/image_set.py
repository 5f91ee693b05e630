"""A set of images in memory, which sources, delivery and evaluation exchange, and which processes can share."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


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
