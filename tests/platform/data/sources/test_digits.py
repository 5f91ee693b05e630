"""The embedded digits: scikit-learn's images, every row in exactly one split."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from ebclab.data.sources import digits
from ebclab.data.sources.digits import read_digits


def test_grey_levels_are_scaled_from_16_to_255_and_rounded() -> None:
    source = load_digits()
    for split in ("train", "test"):
        images, labels, keys = read_digits(split)
        level = source.images[keys.numpy()]
        assert images.dtype == torch.uint8
        assert np.abs(images[:, 0].numpy() - level * 255 / 16).max() <= 0.5
        assert images.max() == 255
        assert np.array_equal(labels.numpy(), source.target[keys.numpy()])


def test_the_splits_are_disjoint_and_complete() -> None:
    keys = torch.cat([read_digits("train")[2], read_digits("test")[2]])
    assert torch.equal(keys.sort().values, torch.arange(1797))


def test_a_fifth_is_for_testing_within_binomial_bounds() -> None:
    spread = math.sqrt(1797 * 0.2 * 0.8)
    assert abs(len(read_digits("test")[0]) - 1797 * 0.2) < 4 * spread


def test_every_class_is_tested() -> None:
    expected = 1797 * 0.2 / 10
    counts = torch.bincount(read_digits("test")[1], minlength=10)
    assert (counts - expected).abs().max() < 4 * math.sqrt(expected)


def test_the_split_is_the_same_twice() -> None:
    assert torch.equal(read_digits("test")[2], read_digits("test")[2])


def test_scikit_learn_is_imported_for_them_only_where_it_keeps_its_file_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = read_digits("test")
    with monkeypatch.context() as patch:
        patch.setattr(digits, "_FILE", "elsewhere.csv.gz")
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(read_digits("test"), found, strict=True))
        patch.setitem(sys.modules, "sklearn.datasets", None)
        with pytest.raises(ImportError):
            read_digits("test")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(read_digits("test"), found, strict=True))
