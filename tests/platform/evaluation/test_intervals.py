"""Intervals against scipy, published values and the equation that defines them."""

import math

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binomtest

from ebclab.evaluation.intervals import mean_and_std, score_of, wilson_interval

Z = 1.959963984540054  # 97.5 % point of the standard normal


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0000, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_published_examples(right: int, total: int, low: float, high: float) -> None:
    """Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3."""
    assert wilson_interval(right / total, total) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("right", "total"), [(0, 1), (1, 1), (9, 10), (360, 360), (8_123, 10_000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_equal_to_scipy(right: int, total: int, confidence: float) -> None:
    expected = binomtest(right, total).proportion_ci(confidence, method="wilson")
    assert wilson_interval(right / total, total, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_ends_are_where_the_score_test_is_just_accepted() -> None:
    accuracy, total = 0.7345, 360  # a mean over seeds need not be a whole number of images

    def excess(p: float) -> float:
        return abs(accuracy - p) - Z * math.sqrt(p * (1 - p) / total)

    expected = (brentq(excess, 1e-9, accuracy, xtol=1e-14), brentq(excess, accuracy, 1 - 1e-9, xtol=1e-14))
    assert wilson_interval(accuracy, total) == pytest.approx(expected, abs=1e-12)


def test_ends_stay_inside_zero_and_one() -> None:
    for total in range(1, 200):
        assert 0.0 <= wilson_interval(0.0, total)[0] < 1e-12
        assert 1.0 >= wilson_interval(1.0, total)[1] > 1 - 1e-12


def test_spread_over_seeds_has_n_minus_one_in_the_divisor() -> None:
    assert mean_and_std([0.5, 0.7, 0.9]) == pytest.approx((0.7, 0.2))  # (0.04 + 0 + 0.04) / 2 = 0.2^2
    assert mean_and_std([0.25]) == (0.25, None)


def test_a_score_holds_what_it_was_made_from() -> None:
    right, keys = torch.arange(100)[None] < torch.tensor([[80], [90]]), torch.arange(100)
    score = score_of("linear", right, keys, detail="how", seeds=(4, 5))
    assert (score.value, score.std) == pytest.approx((0.85, math.sqrt(0.005)))
    assert (score.low, score.high) == wilson_interval(score.value, 100)
    assert (score.per_seed, score.seeds, score.num_images) == ((0.8, 0.9), (4, 5), 100)
    exact = score_of("knn", right[:1], keys, detail="how")
    assert (exact.seeds, exact.per_seed, exact.std) == ((), (), None)
