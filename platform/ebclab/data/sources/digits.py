"""The embedded dataset: scikit-learn's 1,797 real handwritten digits of 8x8 pixels, no download needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ebclab.data.hashing import hash_words, unit_interval

_SPLIT_SALT = 0x646967697473  # salt of the fixed train/test split; other uses of the keys have their own
_TEST_RATE = 0.2
_WHITE = 16  # scikit-learn stores counts 0..16
_FILE = "datasets/data/digits.csv.gz"  # where the package keeps them


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
