"""Image sets keep rows together; held-out images and lists of labels are chosen by hash of the key alone."""

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from ebclab.data.holdout import label_list, limit, split_images
from ebclab.data.image_set import ImageSet, channel_statistics, short_digest
from ebclab.data.sources.catalogue import Split
from ebclab.errors import DataError


def keyed(keys: torch.Tensor) -> ImageSet:
    images = (keys % 251).to(torch.uint8).view(-1, 1, 1, 1)
    return ImageSet("keyed", images, keys % 10, keys, (), (0.0,), (1.0,))


def chosen(image_set: ImageSet) -> set[int]:
    return set(image_set.keys.tolist())


def test_a_limit_keeps_the_images_of_smallest_hash_and_0_all(splitmix64_words: Callable[..., int]) -> None:
    keys = [3, 11, -2, 40, 5, 77, 8]
    ranked = sorted(keys, key=lambda key: splitmix64_words(int.from_bytes(b"limit"), key))
    for count in range(9):
        kept = limit(keyed(torch.tensor(keys)), count).keys.tolist()
        assert kept == [key for key in keys if key in ranked[: count or 7]]


def test_the_digest_is_that_of_the_pixels_and_the_keys_behind_them() -> None:
    keys = [3, 250, 7]
    expected = hashlib.sha256(bytes(keys) + struct.pack("<3q", *keys)).hexdigest()
    images = keyed(torch.tensor(keys))
    assert short_digest(images.images, images.keys) == expected[:16]


def test_parts_are_those_that_a_hash_of_the_key_and_a_salt_for_each_choice_names(splitmix64_words):
    """Images to confirm with are taken first; who is held out does not depend on it."""
    keys = (torch.randperm(2000, generator=torch.Generator().manual_seed(0)) * 3 - 500).tolist()
    whole = keyed(torch.tensor(keys))
    limited = sorted(keys, key=lambda key: splitmix64_words(int.from_bytes(b"limit"), key))[:1500]

    def below(salt: bytes, rate: float) -> set[int]:
        return {key for key in limited if splitmix64_words(int.from_bytes(salt), key) % 2**64 < rate * 2**64}

    split = split_images(whole, train_limit=1500, holdout_rate=0.1, confirm_rate=0.2)
    confirm, held = below(b"confirm", 0.2), below(b"holdout", 0.1)
    assert split.confirm is not None
    assert chosen(split.confirm) == confirm
    assert chosen(split.holdout) == held - confirm
    assert chosen(split.train) == set(limited) - held - confirm
    for part in split.parts:
        assert part.keys.tolist() == [key for key in keys if key in chosen(part)]
        assert torch.equal(part.images.flatten(), (part.keys % 251).to(torch.uint8))
    without = split_images(whole, train_limit=1500, holdout_rate=0.1)
    assert without.confirm is None
    assert chosen(without.holdout) == held
    assert split_images(whole, train_limit=0, holdout_rate=0.0).holdout.images.shape == (0, 1, 1, 1)
    assert split.scored("holdout") is split.holdout
    assert split.scored("confirm") is split.confirm


def test_rows_takes_image_label_and_key_together_by_index_and_by_mask() -> None:
    data = replace(keyed(torch.arange(100, 106)), class_names=tuple("0123456789"))
    by_index = data.rows(torch.tensor([4, 1]))
    assert len(by_index) == 2
    assert by_index.images[:, 0, 0, 0].tolist() == [104, 101]
    assert by_index.labels.tolist() == [4, 1]
    assert by_index.keys.tolist() == [104, 101]
    for field in ("name", "class_names", "mean", "std"):
        assert getattr(by_index, field) == getattr(data, field)
    by_mask = data.rows(torch.tensor([False, True, False, False, True, False]))
    assert by_mask.keys.tolist() == [101, 104]


def test_channel_statistics_are_exact_on_every_machine() -> None:
    images = torch.randint(0, 256, (7, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = channel_statistics(images)
    for channel in range(3):
        pixels = [Fraction(int(value), 255) for value in images[:, channel].flatten()]
        expected = sum(pixels) / len(pixels)
        assert mean[channel] == float(expected)
        assert std[channel] == math.sqrt(sum((pixel - expected) ** 2 for pixel in pixels) / len(pixels))


KNOWN = {
    ("mnist", 1, 0): "972d6950e4b0d8b044d44e5edcdab8e50974ba8ef6c4d46fcbfc1762cb27fd64",
    ("mnist", 1, 1): "a8505692df26e688a6d07bbfb38fa72b4331eb74abfebac7f621e0f4b0f2765b",
    ("mnist", 1, 2): "2e54db7e71e2bd10af0c6bd0554e9a2b527233c1119e3cc89bb74a255b71bd06",
    ("mnist", 10, 0): "0da82375514acd91ccb24070f1d06bc60b5922cd9563cab61fa30a8a8c2d9e10",
    ("mnist", 10, 1): "8a11b42ac9050eb6d59ee6775525c3485ee50c3af0d315751d92d06ac4d0c917",
    ("mnist", 10, 2): "2ba455b35a0b5f0faf7da731ccb7a9d2b9b383544d746f10b6813e75c16adadc",
    ("fashion-mnist", 1, 0): "588705926fe07bb76decde4749a22da5521b655bc374049c21e33e626231d07f",
    ("fashion-mnist", 1, 1): "17ced906937ad9f88653762bee32126fa677da8ff9aafc808cc5749000d86d5b",
    ("fashion-mnist", 1, 2): "84bf9f415997ad53b1b4301f201f6e1861a6e661f29910215531c2fd3df6f1d6",
    ("fashion-mnist", 10, 0): "398b0ef7330d6bbd1a072466e39ca5188f3567b3a92ce3ea1d9dffcfe9fd2e24",
    ("fashion-mnist", 10, 1): "0f4e07bc57b7783681024515c6ca8dc7fe1faeaf9f52a6e82e5429626ec22b44",
    ("fashion-mnist", 10, 2): "2c649e5c50c40529b189228b18683f3a0bace2c7ceb9315ce83d8e7847a87615",
    ("cifar10", 1, 0): "99c7d00c64ce7f75b78b814d32ab0e838875a9c04c2f82adec3aebaa0c800ef0",
    ("cifar10", 1, 1): "4c540688f8909452639f873f3db0a420bfebec7b6d117569220462c906953d62",
    ("cifar10", 1, 2): "1d1f4900f31fe572fa6ae34d9f8a1b50ffaf40ab3c552ec8326a373cc8144323",
    ("cifar10", 10, 0): "e34a9c0ae6d417b0b5082a8da62464b9beee0b21a032194d9fe6339308f3597d",
    ("cifar10", 10, 1): "7659092da048cf7639c1b6d4115c7dbe5cc10da0d0c41431b7631f1ce822424c",
    ("cifar10", 10, 2): "6f3bd050b7a2a77662384289e06ddc2fe18f1cbd5fa19660c144b4920530cd7b",
}
"""SHA-256 of published lists, by dataset, per cent and seed: from the hash in Python integers and the labels' files."""


def labelled(labels: list[int], keys: torch.Tensor | None = None) -> ImageSet:
    count = len(labels)
    keys = torch.arange(count) if keys is None else keys
    return ImageSet("made-up", torch.zeros(count, 1, 1, 1).byte(), torch.tensor(labels), keys, (), (0.0,), (1.0,))


@pytest.mark.parametrize(("percent", "seed"), [(10, 0), (10, 1), (50, 0)])
def test_a_list_is_what_the_hash_in_python_integers_chooses(percent, seed, splitmix64_words):
    """Class by class the keys of smallest hash, whatever the order of the images."""
    keys = torch.randperm(120, generator=torch.Generator().manual_seed(0)) * 1_000_003
    data = labelled([int(key) % 3 for key in keys], keys)
    ranked = sorted(keys.tolist(), key=lambda key: splitmix64_words(int.from_bytes(b"labels"), seed, key))
    of_classes = [[key for key in ranked if key % 3 == label][: 120 * percent // 300] for label in range(3)]
    found = label_list(data, percent, seed, 3)
    assert found.keys.tolist() == [key for each in of_classes for key in each]
    assert torch.equal(data.keys[found.rows], found.keys)
    expected = b"".join(struct.pack("<q", key) for key in sorted(found.keys.tolist()))
    assert found.digest == hashlib.sha256(expected).hexdigest()
    assert found.counts == (120 * percent // 300,) * 3


def test_a_class_with_too_few_images_gives_all_and_the_words_say_so() -> None:
    found = label_list(labelled([0] * 90 + [1] * 10 + [2] * 2), 30, 0, 3)
    assert found.counts == (10, 10, 2)
    assert found.size_in_words == "2 to 10 images of a class"


def test_folds_part_the_list_and_each_has_every_class() -> None:
    data = labelled([row % 3 for row in range(300)])
    found = label_list(data, 10, 0, 3)
    folds = torch.stack([found.fold(number, 5) for number in range(5)])
    assert torch.equal(folds.sum(dim=0), torch.ones(30, dtype=torch.int64))
    for fold in folds:
        assert torch.bincount(data.labels[found.rows[fold]]).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("labels", "percent", "classes", "message"),
    [
        ([row % 10 for row in range(999)], 1, 10, "made-up: 1 % of 999 training images is less than one"),
        ([0] * 50 + [2] * 50, 10, 3, "every class needs a training image, got none of class 1"),
    ],
)
def test_a_list_without_an_image_of_each_class_is_one_sentence(labels, percent, classes, message):
    with pytest.raises(DataError, match=message):
        label_list(labelled(labels), percent, 0, classes)
    assert label_list(labelled([row % 10 for row in range(1000)]), 1, 0, 10).counts == (1,) * 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_published_lists_of_real_images_never_change(name: str, real: Callable[[str, Split], ImageSet]) -> None:
    train = real(name, "train")
    for (_, percent, seed), digest in ((key, value) for key, value in KNOWN.items() if key[0] == name):
        found = label_list(train, percent, seed, 10)
        assert found.digest == digest
        assert found.counts == (len(train) * percent // 1000,) * 10
