"""Intervals over seeds and images: slow loops of the equations, closed forms in the limits, scipy and a bootstrap."""

import math

import numpy as np
import pytest
from scipy import stats

from ebclab.evaluation.seeds_and_images import (
    VarianceParts,
    difference_interval,
    difference_over_images,
    mean_interval,
    quantile,
)

CHANCE = 0.05
Z = 1.959963984540054  # 97.5 % point of the standard normal


def drawn(num_seeds: int, num_images: int, seed: int = 0) -> np.ndarray:
    """Right answers whose difficulty depends on the image."""
    generator = np.random.default_rng(seed)
    ease = generator.uniform(0.3, 1.0, num_images)
    return (generator.random((num_seeds, num_images)) < ease).astype(np.float64)


@pytest.mark.parametrize(("num_seeds", "num_images"), [(2, 3), (3, 7), (5, 40)])
def test_the_parts_are_the_mean_squares_of_the_two_way_table(num_seeds: int, num_images: int) -> None:
    table = drawn(num_seeds, num_images)
    rows, columns = range(num_seeds), range(num_images)
    mean = math.fsum(table[r][i] for r in rows for i in columns) / (num_seeds * num_images)
    row = [math.fsum(table[r][i] for i in columns) / num_images for r in rows]
    column = [math.fsum(table[r][i] for r in rows) / num_seeds for i in columns]
    seeds = num_images * math.fsum((row[r] - mean) ** 2 for r in rows) / (num_seeds - 1)
    images = num_seeds * math.fsum((column[i] - mean) ** 2 for i in columns) / (num_images - 1)
    rest = math.fsum((table[r][i] - row[r] - column[i] + mean) ** 2 for r in rows for i in columns)
    rest /= (num_seeds - 1) * (num_images - 1)
    size = num_seeds * num_images
    parts = VarianceParts.of(table)
    assert parts.seeds == pytest.approx(seeds / size, rel=1e-12)
    assert parts.images == pytest.approx(max(0.0, images - rest) / size, rel=1e-9)
    assert parts.fixed_seeds == pytest.approx(images / size, rel=1e-12)


def test_equal_runs_have_the_paired_interval_over_images_of_agresti_and_min() -> None:
    """b images only the one has right, c only the other: (b - c)/(n + 2) +- t sqrt(variance / (n + 2))."""
    both, b, c, neither = 100, 9, 4, 28
    one = np.array([1.0] * (both + b) + [0.0] * (c + neither))
    other = np.array([1.0] * both + [0.0] * b + [1.0] * c + [0.0] * neither)
    total = both + b + c + neither + 2
    mean = (b - c) / total
    variance = ((b + c + 1) - total * mean**2) / (total - 1)
    half = stats.t.ppf(0.975, total - 1) * (variance / total) ** 0.5
    for num_seeds in (2, 3, 10):
        found = difference_interval(np.tile(one, (num_seeds, 1)), np.tile(other, (num_seeds, 1)), CHANCE)
        assert found == pytest.approx((mean - half, mean + half), abs=1e-12)


def test_seeds_that_differ_on_images_of_their_own_add_as_much_less_as_their_mean_varies_less() -> None:
    """The one is right and the other wrong on k of n images at each seed, on no image at both seeds.

    The mean over seeds is 1/2 on 2 k images, with squares of k/2, where those of a run sum to k: half is kept, so
    +-1/2 is added, with squares of 1/2. No seed is ahead, so that images alone set the width: with N = n + 2 and mean
    m = k / N, the variance of the mean over images is ((k + 1) / 2 - N m^2) / (N - 1) / N.
    """
    k, n = 6, 40
    table = np.zeros((2, n))
    table[0, :k] = table[1, k : 2 * k] = 1.0
    mean = k / (n + 2)
    variance = ((k + 1) / 2 - (n + 2) * mean**2) / (n + 1) / (n + 2)
    half = stats.t.ppf(0.975, n + 1) * variance**0.5
    found = difference_interval(table, np.zeros_like(table), CHANCE)
    assert found == pytest.approx((mean - half, mean + half), abs=1e-12)


def test_equal_runs_have_the_interval_of_agresti_and_coull_around_their_accuracy() -> None:
    right = np.tile(np.array([1.0] * 133 + [0.0] * 8), (2, 1))
    share = (133 + 2) / (141 + 4)
    half = stats.t.ppf(0.975, 144) * (share * (1 - share) / 144) ** 0.5
    assert mean_interval(right, CHANCE) == pytest.approx((share - half, share + half), abs=1e-12)


@pytest.mark.parametrize(("num_images", "share"), [(100, 0.005), (300, 0.005), (1_000, 0.005), (300, 0.1)])
def test_of_one_run_each_it_covers_about_as_often_as_it_says(num_images: int, share: float) -> None:
    """One is right where the other is wrong on a share of all images, never the other way round: summed exactly."""
    covered = 0.0
    for count in range(num_images + 1):
        gaps = np.arange(num_images) < count
        low, high = difference_over_images(gaps.astype(np.float64), 0.05)
        covered += stats.binom.pmf(count, num_images, share) * (low <= share <= high)
    assert covered > 0.94


def test_with_many_images_it_is_students_interval_over_seeds() -> None:
    """Every image of a seed has that seed's score: the images say nothing more, however many there are."""
    scores = np.array([0.50, 0.52, 0.57])
    table = np.zeros((3, 1_000_000))
    for row, score in zip(table, scores, strict=True):
        row[: round(score * 1_000_000)] = 1.0
    generator = np.random.default_rng(0)
    shuffled = np.stack([generator.permutation(row) for row in table])  # no image is easier than another
    expected = stats.t.interval(0.95, 2, loc=scores.mean(), scale=stats.sem(scores))
    assert mean_interval(shuffled, CHANCE) == pytest.approx(expected, abs=2e-5)
    gap = difference_interval(shuffled, np.zeros_like(shuffled) + 0.25, CHANCE)
    assert gap == pytest.approx((expected[0] - 0.25, expected[1] - 0.25), abs=2e-5)


def test_two_seeds_that_tie_are_not_certain() -> None:
    """.950 and .950 against .943 and .943 on 141 images: 134 and 133 right, seven images differ each way but one."""
    one, other = np.ones((2, 141)), np.ones((2, 141))
    one[:, :7], other[:, 6:14] = 0.0, 0.0
    assert one.mean() - other.mean() == pytest.approx(1 / 141)
    low, high = difference_interval(one, other, CHANCE)
    assert low < -0.02 < 0.035 < high
    # the seeds tie, and are right about different images: still no narrower than over the images of these very runs
    one[1], other[1] = np.roll(one[1], 50), np.roll(other[1], 60)
    low, high = difference_interval(one, other, CHANCE)
    fixed = VarianceParts.of(one - other).fixed_seeds
    assert high - low >= 2 * Z * fixed**0.5
    assert low < 0 < high


def test_runs_without_any_mistake_or_any_difference_still_have_a_width() -> None:
    right = np.ones((3, 50))
    low, high = difference_interval(right, right, CHANCE)
    assert (low, high) == pytest.approx((-high, high))
    assert high == pytest.approx(stats.t.ppf(0.975, 51) * (1 / 51 / 52) ** 0.5, rel=1e-12)  # two images, +-sqrt(1/2)
    assert mean_interval(right, CHANCE)[0] < 0.95
    assert mean_interval(right, CHANCE)[1] == 1.0


def test_one_image_says_next_to_nothing() -> None:
    """Three of five right, with the four that are added: 0.6 -+ t_4 sqrt(0.24 / 4) reaches beyond 0 and 1."""
    assert mean_interval(np.ones((2, 1)), CHANCE) == (0.0, 1.0)
    low, high = mean_interval(np.ones((2, 1)), 0.5)
    half = stats.t.ppf(0.75, 4) * (0.24 / 4) ** 0.5
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half))


def test_the_quantile_is_that_of_both_tails() -> None:
    assert quantile(0.05, 1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-12)
    assert quantile(0.05, 10**9) == pytest.approx(Z, rel=1e-8)
