"""The embedded dataset: scikit-learn's 1,797 real handwritten digits of 8x8 pixels, no download needed."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words, unit_interval

_SPLIT_SALT = 0x646967697473  # names the fixed train/test split; any other use of the keys has its own salt
_TEST_RATE = 0.2
_WHITE = 16  # scikit-learn stores counts 0..16


def read_digits(split: Literal["train", "test"]) -> tuple[Tensor, Tensor, Tensor]:
    """Return images (n, 1, 8, 8) uint8, labels (n,) int64 and keys (n,) int64 of one split.

    The source has no split of its own: a fifth of the images, chosen by hash of the row, is the test set,
    the same on every machine.

    Args:
        split: Which part.
    """
    from sklearn.datasets import load_digits  # takes a second to import, so only when asked for

    source = load_digits()
    images = torch.from_numpy(source.images * (255 / _WHITE)).round().to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(source.target).long()
    keys = torch.arange(len(labels))
    in_test = unit_interval(hash_words(_SPLIT_SALT, keys)) < _TEST_RATE
    chosen = in_test if split == "test" else ~in_test
    return images[chosen], labels[chosen], keys[chosen]
