"""Which training images keep their label when few labels are used: chosen for each class by hash of the key.

n images, K classes, p per cent of the labels. Each class contributes ``floor(n p / (100 K))`` images, those of smallest
``hash(seed, key)``; a smaller class contributes all its images. Lists are the same for every encoder and every version
of any library, and the list of a smaller share is a subset of that of a larger one with the same seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words
from ebclab.data.image_set import ImageSet
from ebclab.errors import DataError

_LABELS_SALT = 0x6C6162656C73


@dataclass(frozen=True)
class LabelList:
    """The images of one list, m of them."""

    percent: int  # p
    seed: int  # the seed of the list
    rows: Tensor  # (m,) int64 rows in the set, class by class, within a class by hash
    keys: Tensor  # (m,) int64 keys of these images
    rank: Tensor  # (m,) int64 place of each image within its class, from 0
    counts: tuple[int, ...]  # images of each class

    @property
    def digest(self) -> str:
        """SHA-256 of the keys in ascending order, 8 bytes each, the lowest first."""
        return hashlib.sha256(self.keys.sort().values.numpy().astype("<i8").tobytes()).hexdigest()

    @property
    def size_in_words(self) -> str:
        """How many images each class has."""
        low, high = min(self.counts), max(self.counts)
        if low < high:
            return f"{low:,} to {high:,} images of a class"
        return "1 image of each class" if high == 1 else f"{high:,} images of each class"

    def fold(self, number: int, folds: int) -> Tensor:
        """Return which images (m,) bool belong to one of ``folds`` parts, from 0, each with its share of every class.

        With no more parts than the smallest class has images, each part has all classes.
        """
        return self.rank % folds == number


def label_list(images: ImageSet, percent: int, seed: int, num_classes: int) -> LabelList:
    """Return the list of images whose labels are known; every image of the training set has a label."""
    wanted = len(images) * percent // (100 * num_classes)
    if wanted == 0:
        raise DataError(
            f"{images.name}: {percent} % of {len(images):,} training images is less than one for each of "
            f"{num_classes:,} classes; measure on a larger set"
        )
    order = torch.argsort(hash_words(_LABELS_SALT, seed, images.keys), stable=True)
    by_class = [order[images.labels[order] == label][:wanted] for label in range(num_classes)]
    if empty := [label for label, rows in enumerate(by_class) if len(rows) == 0]:
        raise DataError(f"{images.name}: every class needs a training image, got none of class {empty[0]}; add some")
    rows = torch.cat(by_class)
    rank = torch.cat([torch.arange(len(each)) for each in by_class])
    return LabelList(percent, seed, rows, images.keys[rows], rank, tuple(map(len, by_class)))
