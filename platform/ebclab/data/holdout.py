"""Parts of a dataset chosen by hash of the sample key: the same images on any machine, in any order.

Held-out images, a limit, and images to confirm with do not depend on the seed. A list of the images whose labels are
known depends on a seed of its own: of n images in K classes, p per cent of the labels, each class contributes
``floor(n p / (100 K))`` images, those of smallest ``hash(seed, key)``; a smaller class contributes all its images.
Lists are the same for every encoder and every version of any library, and the list of a smaller share is a subset of
that of a larger one with the same seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words, unit_interval
from ebclab.data.image_set import ImageSet, content_digest, short_digest
from ebclab.errors import DataError

_HOLDOUT_SALT = 0x686F6C646F7574  # a salt for each choice, so that the choices are independent
_LIMIT_SALT = 0x6C696D6974
_CONFIRM_SALT = 0x636F6E6669726D
_LABELS_SALT = 0x6C6162656C73


@dataclass(frozen=True)
class Split:
    """The images of a run, those for training apart from those for selection."""

    train: ImageSet  # training images
    holdout: ImageSet  # images held out of training; may be empty
    digest: str  # short hash of ``train``, which every checkpoint holds
    content: str  # digest of everything that a run uses of its images; stored in its settings as ``data.digest``
    confirm: ImageSet | None = None  # images that only confirming runs of a sweep are scored on; None if there are none

    @property
    def parts(self) -> list[ImageSet]:
        return [part for part in (self.train, self.holdout, self.confirm) if part is not None]

    def scored(self, part: str) -> ImageSet:
        """Return the images of the part that ``evaluation.scored_on`` names, "holdout" or "confirm"."""
        return self.confirm if part == "confirm" and self.confirm is not None else self.holdout


def split_images(whole: ImageSet, *, train_limit: int, holdout_rate: float, confirm_rate: float = 0.0) -> Split:
    """Return the images of a run.

    Args:
        train_limit: Use at most so many of them; 0 uses all.
        holdout_rate: Share held out, of the images that ``confirm_rate`` leaves.
        confirm_rate: Share kept for the confirming runs of a sweep, taken first.
    """
    train, holdout, kept = map(whole.rows, rows_of_parts(whole.keys, train_limit, holdout_rate, confirm_rate))
    confirm = [kept] if confirm_rate else []
    digest = short_digest(train.images, train.keys)
    return Split(train, holdout, digest, content_digest(train, holdout, *confirm), *confirm)


def rows_of_parts(
    keys: Tensor, train_limit: int, holdout_rate: float, confirm_rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows for training, those held out, and those kept to confirm with, given the keys (n,) alone."""
    chosen = limited(keys, train_limit)
    kept = kept_to_confirm(keys[chosen], confirm_rate)
    held = held_out(keys[chosen], holdout_rate) & ~kept
    return chosen[~held & ~kept], chosen[held], chosen[kept]


def limit(image_set: ImageSet, count: int) -> ImageSet:
    """Return at most ``count`` images of ``image_set``, those of smallest hash, in its order; 0 keeps all.

    A smaller limit always chooses a subset of what a larger one chooses.
    """
    rows = limited(image_set.keys, count)
    return image_set if len(rows) == len(image_set) else image_set.rows(rows)


def held_out(keys: Tensor, rate: float) -> Tensor:
    """Return which images are held out with probability ``rate``, (n,) bool, by their keys (n,) alone."""
    return unit_interval(hash_words(_HOLDOUT_SALT, keys)) < rate


def kept_to_confirm(keys: Tensor, rate: float) -> Tensor:
    """Return which images are kept to confirm with probability ``rate``, (n,) bool; ``held_out`` does not matter."""
    return unit_interval(hash_words(_CONFIRM_SALT, keys)) < rate


def limited(keys: Tensor, count: int) -> Tensor:
    """Return the rows that ``limit`` keeps, in order, given the keys (n,) of all images alone."""
    if count == 0 or count >= len(keys):
        return torch.arange(len(keys))
    smallest = torch.argsort(hash_words(_LIMIT_SALT, keys), stable=True)[:count]
    return smallest.sort().values


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
    labels = images.labels[order]
    by_class = [  # one sort: a mask for each of many classes would take minutes
        rows[:wanted]
        for rows in torch.split(order[labels.argsort(stable=True)], labels.bincount(minlength=num_classes).tolist())
    ]
    if empty := [label for label, rows in enumerate(by_class) if len(rows) == 0]:
        raise DataError(f"{images.name}: every class needs a training image, got none of class {empty[0]}; add some")
    rows = torch.cat(by_class)
    rank = torch.cat([torch.arange(len(each)) for each in by_class])
    return LabelList(percent, seed, rows, images.keys[rows], rank, tuple(map(len, by_class)))
