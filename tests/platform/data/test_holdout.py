"""Image sets keep rows together; held-out images are chosen by their own key, exact in expectation."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable

import torch

from ebclab.data.digests import short_digest
from ebclab.data.holdout import limit, split_images
from ebclab.data.image_set import ImageSet, channel_statistics


def keyed(keys: torch.Tensor) -> ImageSet:
    images = (keys % 251).to(torch.uint8).view(-1, 1, 1, 1)
    return ImageSet("keyed", images, keys % 10, keys, (), (0.0,), (1.0,))


def split_holdout(images: ImageSet, rate: float) -> tuple[ImageSet, ImageSet]:
    split = split_images(images, train_limit=0, holdout_rate=rate)
    return split.train, split.holdout


def chosen(image_set: ImageSet) -> set[int]:
    return set(image_set.keys.tolist())


def test_both_parts_are_disjoint_complete_and_in_order() -> None:
    data = keyed(torch.arange(5000))
    train, holdout = split_holdout(data, 0.3)
    assert torch.equal(torch.cat([train.keys, holdout.keys]).sort().values, data.keys)
    for part in (train, holdout):
        assert bool((part.keys.diff() > 0).all())
        assert torch.equal(part.images.flatten(), (part.keys % 251).to(torch.uint8))


def test_neither_order_nor_other_images_matter_and_a_higher_rate_adds() -> None:
    keys = torch.arange(4000)
    shuffled = keys[torch.randperm(4000, generator=torch.Generator().manual_seed(0))]
    held = chosen(split_holdout(keyed(keys), 0.1)[1])
    assert chosen(split_holdout(keyed(shuffled), 0.1)[1]) == held
    assert chosen(split_holdout(keyed(shuffled[:1000]), 0.1)[1]) == held & set(shuffled[:1000].tolist())
    assert held < chosen(split_holdout(keyed(keys), 0.2)[1])
    assert split_holdout(keyed(keys), 0.0)[1].images.shape == (0, 1, 1, 1)


def test_a_limit_keeps_exactly_that_many_in_order_and_0_keeps_all() -> None:
    keys = torch.arange(4000)
    limited = limit(keyed(keys), 777)
    assert len(limited) == 777
    assert bool((limited.keys.diff() > 0).all())
    assert chosen(limit(keyed(keys.flip(0)), 777)) == chosen(limited)
    assert chosen(limit(keyed(keys), 100)) < chosen(limited)
    for count in (0, 4000, 5000):
        assert torch.equal(limit(keyed(keys), count).keys, keys)


def test_a_limit_keeps_the_images_of_smallest_hash(splitmix64_words: Callable[..., int]) -> None:
    keys = [3, 11, -2, 40, 5, 77, 8]
    ranked = sorted(keys, key=lambda key: splitmix64_words(int.from_bytes(b"limit"), key))
    for count in range(1, len(keys)):
        kept = limit(keyed(torch.tensor(keys)), count).keys.tolist()
        assert kept == [key for key in keys if key in ranked[:count]]


def test_the_digest_is_that_of_the_pixels_and_the_keys_behind_them() -> None:
    keys = [3, 250, 7]
    expected = hashlib.sha256(bytes(keys) + struct.pack("<3q", *keys)).hexdigest()
    images = keyed(torch.tensor(keys))
    assert short_digest(images.images, images.keys) == expected[:16]


def test_parts_are_those_that_a_hash_of_the_key_and_a_salt_for_each_choice_names(
    splitmix64_words: Callable[..., int],
) -> None:
    """Images to confirm with are taken first; who is held out does not depend on it."""

    def below(salt: bytes, rate: float) -> set[int]:
        return {key for key in range(2000) if splitmix64_words(int.from_bytes(salt), key) % 2**64 < rate * 2**64}

    whole = keyed(torch.arange(2000))
    split = split_images(whole, train_limit=0, holdout_rate=0.1, confirm_rate=0.2)
    confirm, held = below(b"confirm", 0.2), below(b"holdout", 0.1)
    assert split.confirm is not None
    assert chosen(split.confirm) == confirm
    assert chosen(split.holdout) == held - confirm
    assert chosen(split.train) == set(range(2000)) - held - confirm
    without = split_images(whole, train_limit=0, holdout_rate=0.1)
    assert without.confirm is None
    assert chosen(without.holdout) == held
    assert split.scored("holdout") is split.holdout
    assert split.scored("confirm") is split.confirm


def numbered(count: int) -> ImageSet:
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(count, 1, 2, 2)
    rows = torch.arange(count)
    return ImageSet("numbered", images, rows % 3, rows + 100, ("a", "b", "c"), (0.5,), (1.0,))


def test_rows_takes_image_label_and_key_together_by_index_and_by_mask() -> None:
    data = numbered(6)
    by_index = data.rows(torch.tensor([4, 1]))
    assert len(by_index) == 2
    assert by_index.images[:, 0, 0, 0].tolist() == [4, 1]
    assert by_index.labels.tolist() == [1, 1]
    assert by_index.keys.tolist() == [104, 101]
    for field in ("name", "class_names", "mean", "std"):
        assert getattr(by_index, field) == getattr(data, field)
    by_mask = data.rows(torch.tensor([False, True, False, False, True, False]))
    assert by_mask.keys.tolist() == [101, 104]


def test_channel_statistics_equal_a_loop_over_pixels() -> None:
    images = torch.randint(0, 256, (7, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = channel_statistics(images)
    for channel in range(3):
        pixels = [int(value) / 255 for value in images[:, channel].flatten()]
        expected = math.fsum(pixels) / len(pixels)
        variance = math.fsum((pixel - expected) ** 2 for pixel in pixels) / len(pixels)
        assert math.isclose(mean[channel], expected, rel_tol=1e-13)
        assert math.isclose(std[channel], math.sqrt(variance), rel_tol=1e-12)


def test_a_constant_image_has_its_grey_level_and_no_spread() -> None:
    mean, std = channel_statistics(torch.full((2, 1, 3, 3), 51, dtype=torch.uint8))
    assert math.isclose(mean[0], 0.2, rel_tol=1e-15)
    assert std[0] < 1e-7  # the square root of a rounding error
