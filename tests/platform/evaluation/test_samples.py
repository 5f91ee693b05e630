"""Measures of samples against closed forms and loops, and the picture of chains."""

import math

import numpy
import pytest
import torch
from torch import Tensor

from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.linear import LinearHead
from ebclab.evaluation.samples import (
    Judge,
    diversity,
    draw_chains,
    fit_judge,
    levels,
    measure_samples,
    nearest_distances,
)
from energy_contrast.sampling_method import ChainTrace

AS_THEY_ARE = Preprocessing(8, (0.5,), (0.5,))


def image_set(images: Tensor, labels: Tensor, names: tuple[str, ...] = (), marks: Tensor | None = None) -> ImageSet:
    return ImageSet("images", images, labels, torch.arange(len(images)), names, (0.5,), (0.3,), marks)


def random_bytes(count: int, seed: int) -> Tensor:
    return torch.randint(256, (count, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_the_variety_of_samples_is_the_mean_distance_of_all_pairs() -> None:
    pixels = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    rows = pixels.flatten(1).tolist()
    pairs = [
        math.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / 48)
        for place, one in enumerate(rows)
        for other in rows[:place]
    ]
    assert diversity(pixels) == pytest.approx(sum(pairs) / 10)
    assert diversity(torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)])) == 1
    assert diversity(torch.ones(3, 1, 2, 2)) == 0
    assert diversity(torch.ones(1, 1, 2, 2)) is None


def test_the_nearest_training_image_is_found_in_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebclab.evaluation.samples._AT_ONCE", 4)
    train, queries = random_bytes(11, 2), random_bytes(6, 3)
    queries[0], queries[1] = train[10], train[3]
    seen: list[tuple[int, int]] = []
    known = image_set(train, torch.arange(11))
    found = nearest_distances(queries.float() / 255, known, AS_THEY_ARE, lambda *told: seen.append(told[:2]))
    expected = [
        min((((query.double() - each.double()) / 255) ** 2).mean().sqrt().item() for each in train) for query in queries
    ]
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
    assert found[:2].tolist() == pytest.approx([0, 0], abs=1e-7)
    assert seen == [(4, 11), (8, 11), (11, 11)]


def test_the_classifier_finds_what_pixels_tell_and_nothing_else() -> None:
    images, labels = random_bytes(300, 4) // 2, torch.arange(300) % 3
    for row, label in enumerate(labels.tolist()):
        images[row, 0, label] += 127  # a brighter row of pixels
    train = image_set(images, torch.tensor([0, 4, 7])[labels], ("zero", *"abc", "four"))
    judge = fit_judge(train, AS_THEY_ARE, 1e-3)
    answers = judge.answers(images.float() / 255)
    assert (answers.argmax(dim=1) == labels).all()
    torch.testing.assert_close(answers.sum(dim=1), torch.ones(300, dtype=torch.float64))
    facts = judge.facts(train, AS_THEY_ARE)
    assert (facts["train_images"], facts["test_images"], facts["test_accuracy"], facts["side"]) == (300, 300, 1, 8)
    assert judge.shares(answers[:4], train.class_names) == {"zero": 0.5, "four": 0.25, "7": 0.25}


@pytest.mark.parametrize(
    ("labels", "marks"),
    [
        (torch.full((6,), -1), None),
        (torch.zeros(6).long(), None),
        (torch.full((6,), -1), torch.ones(6, 2).to(torch.int8)),
    ],
)
def test_without_labels_of_two_classes_there_is_no_classifier(labels: Tensor, marks: Tensor | None) -> None:
    train = image_set(random_bytes(6, 5), labels, marks=marks)
    assert fit_judge(train, AS_THEY_ARE, 1e-3) is None
    images = torch.zeros(2, 1, 8, 8)
    found = measure_samples(images, torch.zeros(2), train, AS_THEY_ARE, None)
    assert (found.entropy, found.class_shares, found.diversity) == (None, None, 0)


def test_samples_are_measured_as_the_picture_shows_them_but_for_saturation() -> None:
    """A head of zero weights answers by its biases: the entropy is that of (3/4, 1/4)."""
    head = LinearHead(torch.zeros(64, 2).double(), torch.tensor([math.log(3), 0.0]).double(), 1.0)
    judge = Judge(head, torch.tensor([0, 1]), 2, 8)
    images = torch.stack([torch.full((1, 8, 8), -1.0), torch.full((1, 8, 8), 1.0)])
    images[1, 0, :2] = 9.0  # a quarter of the pixels of the second image
    train = image_set(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(1).long())
    found = measure_samples(images, torch.tensor([1.0, 4.0]), train, AS_THEY_ARE, judge)
    assert found.saturation == 0.125
    assert (found.energy, found.energy_std) == (2.5, pytest.approx(1.5 * math.sqrt(2)))
    assert (found.diversity, found.nearest) == (1, 0.5)  # black and white; to the black training image
    assert found.entropy == pytest.approx(math.log(4) - 0.75 * math.log(3))
    assert found.class_shares == {"0": 1, "1": 0}


def test_large_images_are_made_smaller_for_the_classifier() -> None:
    labels = torch.arange(40) % 2
    images = (labels * 200).to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 96, 96)
    judge = fit_judge(image_set(images, labels), Preprocessing(96, (0.5,) * 3, (0.5,) * 3), 1e-3)
    assert judge.head.weights.shape == (3 * 32 * 32, 2)
    assert (judge.answers(images.float() / 255).argmax(dim=1) == labels).all()


def test_what_lies_beyond_black_and_white_is_cut() -> None:
    pixels = torch.tensor([-3.0, -1.0, 0.0, 1.0, 3.0]).view(5, 1, 1, 1)
    assert levels(pixels, AS_THEY_ARE.pixel_range).flatten().tolist() == [0, 0, 0.5, 1, 1]


def test_rows_of_a_picture_are_chains_and_columns_are_steps_with_their_energies() -> None:
    """Black, grey and white, and beyond them, in the first chain; one energy is another in the second picture."""
    positions = torch.tensor([-9.0, 0.0, 9.0]).view(3, 1, 1, 1, 1).repeat(1, 2, 1, 48, 48)
    positions[2, 1] = 0.0
    energies = [torch.zeros(3, 2), torch.zeros(3, 2)]
    energies[1][2, 0] = 1.5
    pictures = [
        numpy.asarray(draw_chains(ChainTrace((0, 20, 40), positions, each), AS_THEY_ARE.pixel_range))
        for each in energies
    ]
    levels_seen = [
        [int(pictures[0][36 + 124 * row + 48, 20 + 108 * along + 48, 0]) for along in range(3)] for row in (0, 1)
    ]
    assert levels_seen == [[0, 128, 255], [0, 128, 128]]
    down, along = numpy.nonzero((pictures[0] != pictures[1]).any(axis=2))
    assert 36 + 96 <= down.min() <= down.max() < 36 + 124  # below the first chain
    assert along.min() >= 20 + 2 * 108
