"""Numbers of a card: their values and intervals, by hand and by slow loops."""

import math

import pytest
import torch
from torch.nn import functional

from ebclab.card.card import Better, accuracy, interval_of_mean, mean_over_images, two_samples
from ebclab.evaluation.answers import wilson_interval


def test_an_accuracy_is_the_mean_over_its_seeds_with_wilsons_interval() -> None:
    right = torch.tensor([[True, True, False, True], [True, False, False, True]])
    number = accuracy("a", "A", right, torch.arange(4), protocol="p", seeds=(3, 4))
    assert number.value == pytest.approx(5 / 8)
    assert number.per_seed == (0.75, 0.5)
    assert number.std == pytest.approx(0.125 * 2**0.5)
    assert (number.low, number.high) == pytest.approx(wilson_interval(5 / 8, 4))
    assert number.contributions.tolist() == [1.0, 0.5, 0.0, 1.0]


def test_a_mean_has_students_interval_over_images() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 6.0])  # mean 3, standard deviation sqrt(14 / 3)
    number = mean_over_images("m", "M", values, torch.arange(4), protocol="p", better="higher")
    half = 3.182446305284263 * (14 / 3) ** 0.5 / 2  # Student's 97.5 % point with 3 degrees of freedom, from a table
    assert (number.value, number.low, number.high) == pytest.approx((3.0, 3.0 - half, 3.0 + half))
    loss = mean_over_images("m", "M", values, torch.arange(4), protocol="p", better="lower")
    ends = (3.0 / math.exp(half / 3), 3.0 * math.exp(half / 3))  # of the logarithm, whose deviation is half / 3
    assert (loss.value, loss.low, loss.high) == pytest.approx((3.0, *ends))


@pytest.mark.parametrize(("better", "values"), [("lower", [-1.0, 3.0]), ("neither", [0.0, 2.0]), ("lower", [0.0, 0.0])])
def test_what_may_be_negative_or_is_0_has_ends_at_equal_distances(better: Better, values: list[float]) -> None:
    number = mean_over_images("m", "M", torch.tensor(values), torch.arange(2), protocol="p", better=better)
    assert number.low + number.high == pytest.approx(2 * sum(values) / 2)


def test_the_interval_of_a_skewed_loss_holds_the_truth_more_often_than_students() -> None:
    """NLL of a classifier whose margins are normal, 1,000 sets of 100 images: the truth is a mean of a million."""
    draw = torch.Generator().manual_seed(0)

    def losses(*shape: int) -> torch.Tensor:
        return functional.softplus(-5 - 3 * torch.randn(shape, generator=draw, dtype=torch.float64))

    truth, held = float(losses(1_000_000).mean()), {"lower": 0, "neither": 0}
    for row in losses(1_000, 1, 100).numpy():
        for better in held:
            low, high = interval_of_mean(row, 0.05, better)  # type: ignore[arg-type]
            held[better] += low <= truth <= high
            assert better == "neither" or low > 0
    assert held["neither"] < held["lower"] - 20
    assert held["lower"] > 890


def test_one_image_has_no_interval() -> None:
    number = mean_over_images("m", "M", torch.tensor([2.0]), torch.arange(1), protocol="p", better="lower")
    assert (number.low, number.high) == (None, None)


def test_contributions_of_two_samples_have_the_variance_of_both() -> None:
    first, second = torch.tensor([0.9, 0.8, 1.0, 0.7]).double(), torch.tensor([0.6, 1.0]).double()
    value = 0.83
    first, second = first - first.mean() + value, second - second.mean() + value
    found = two_samples(value, first, second)
    assert float(found.mean()) == pytest.approx(value)
    total, slow = len(first) + len(second), 0.0
    for part in (first, second):  # Var(first) / m + Var(second) / n, m and n in the divisor
        slow += sum((float(each) - value) ** 2 for each in part) / len(part) / len(part)
    assert float(((found - value) ** 2).sum()) / total**2 == pytest.approx(slow)
