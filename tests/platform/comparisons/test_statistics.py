"""Robust statistics and tuning curves against slow loops of their equations, libraries, and what is known."""

from itertools import combinations, product
from statistics import fmean, median

import numpy as np
import pytest
from opda.nonparametric import EmpiricalDistribution
from scipy.stats import mannwhitneyu, trim_mean

from ebclab.comparisons.statistics import (
    CONFIDENCE,
    bootstrap_interval,
    chance_of_spread,
    interquartile_mean,
    probability_of_improvement,
    score_distribution,
    tuning_curve,
)

ONE = [np.array([0.7, 0.8, 0.8, 0.9]), np.array([0.1, 0.2, 0.3, 0.4])]
OTHER = [np.array([0.8, 0.6, 0.7]), np.array([0.5, 0.3, 0.2])]


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    every = sorted(float(score) for task in ONE for score in task)
    assert interquartile_mean(ONE) == pytest.approx(fmean(every[2:6]))
    odd = [np.array([0.1, 0.5, 0.2, 0.9, 0.3]), np.array([0.6, 0.4])]
    assert interquartile_mean(odd) == pytest.approx(trim_mean(np.concatenate(odd), 0.25))


def test_the_chance_of_improvement_is_counted_over_all_pairs_of_runs() -> None:
    shares = [
        fmean(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in product(mine, theirs))
        for mine, theirs in zip(ONE, OTHER, strict=True)
    ]
    assert probability_of_improvement(ONE, OTHER) == pytest.approx(fmean(shares))
    u = mannwhitneyu(ONE[0], OTHER[0]).statistic
    assert probability_of_improvement(ONE[:1], OTHER[:1]) == pytest.approx(u / 12)


def test_the_profile_is_the_share_of_runs_above_each_level() -> None:
    levels = np.array([0.0, 0.35, 0.8, 1.0])
    by_hand = [fmean(fmean(x > level for x in task) for task in ONE) for level in levels]
    assert score_distribution(ONE, levels) == pytest.approx(by_hand)


def test_a_bootstrap_interval_is_repeatable_contains_the_estimate_and_draws_within_tasks_alone():
    intervals = [bootstrap_interval(interquartile_mean, ONE, generator=np.random.default_rng(1)) for _ in range(2)]
    assert intervals[0] == intervals[1]
    assert intervals[0][0] < interquartile_mean(ONE) < intervals[0][1]
    equal = [np.array([0.2, 0.2]), np.array([0.9, 0.9])]  # runs differ between tasks, not within them
    assert bootstrap_interval(interquartile_mean, equal, generator=np.random.default_rng(0)) == (None, None)


def test_a_bootstrap_of_means_agrees_with_the_standard_error() -> None:
    scores = [np.random.default_rng(3).normal(0.5, 0.1, 400)]
    low, high = bootstrap_interval(lambda runs: runs[0].mean(axis=-1), scores, generator=np.random.default_rng(0))
    error = float(np.std(scores[0])) / 400**0.5
    assert (high - low) / (2 * 1.96 * error) == pytest.approx(1.0, abs=0.1)


def test_samples_on_a_leading_axis_are_taken_one_by_one() -> None:
    samples = [np.stack([task, task[::-1] / 2]) for task in ONE]
    for number in range(2):
        alone = [task[number] for task in samples]
        assert interquartile_mean(samples)[number] == pytest.approx(interquartile_mean(alone))
        found = probability_of_improvement(samples, [task[None] for task in OTHER])[number]
        assert found == pytest.approx(probability_of_improvement(alone, OTHER))


def test_a_spread_of_three_draws_has_the_closed_form_of_its_f_test() -> None:
    """With two degrees of freedom above, P(F > f) = (1 + 2 f / d)^(-d / 2); the gains have variance 0.0008 / 3."""
    draws, gains = (0.1, 0.2, 0.3), (0.02, 0.04, 0.06, 0.04)
    noise = (0.0008 / 3 / 2) ** 0.5
    chance = (1 + 2 * 0.01 / noise**2 / 3) ** -1.5
    assert chance_of_spread(draws, gains) == pytest.approx((noise, chance))
    assert chance_of_spread(draws, gains[:1]) is None
    assert chance_of_spread(draws[:1], gains) is None
    assert chance_of_spread(draws, (0.5, 0.5)) == (0.0, 0.0)
    assert chance_of_spread((0.1, 0.1), (0.5, 0.5)) is None


def test_what_a_seed_does_to_all_settings_alike_is_no_noise_of_a_choice() -> None:
    """Ten equal draws of one seed, and two settings that each seed moves by 9 points: 5 of 100 seem a choice."""
    generator = np.random.default_rng(0)
    seeds = 0.09 * generator.normal(size=(4_000, 8))
    own = 0.01 * generator.normal(size=(4_000, 2, 8))
    draws = 0.01 * generator.normal(size=(4_000, 10))
    gains = (seeds + own[:, 0]) - (seeds + own[:, 1])
    found = [chance_of_spread(list(each), list(gain)) for each, gain in zip(draws, gains, strict=True)]
    assert sum(each[1] < 0.05 for each in found if each) / 4_000 == pytest.approx(0.05, abs=0.012)


SCORES = [0.31, 0.12, 0.55, 0.47, 0.82, 0.66, 0.05]


def test_the_expected_best_of_n_is_the_mean_over_all_subsets_and_the_median_of_one_draw_the_median():
    curve = tuning_curve(SCORES)
    assert curve.trials == tuple(range(1, 8))
    for n in curve.trials:
        assert curve.expected[n - 1] == pytest.approx(fmean(max(each) for each in combinations(SCORES, n)))
    assert tuning_curve(SCORES).median[0] == median(SCORES)


def test_the_band_is_that_of_the_library_for_these_very_scores() -> None:
    low, _, high = EmpiricalDistribution.confidence_bands(
        SCORES, CONFIDENCE, 0.0, 1.0, method="ld_equal_tailed", generator=np.random.default_rng(0), n_jobs=1
    )
    curve, trials = tuning_curve(SCORES), np.arange(1, 8)
    assert curve.low == pytest.approx(high.quantile_tuning_curve(trials))  # more mass below: a lower curve
    assert curve.high == pytest.approx(low.quantile_tuning_curve(trials))
    assert all(a <= b <= c for a, b, c in zip(curve.low, curve.median, curve.high, strict=True))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_of_few_draws_the_band_begins_below_the_worst_of_them(count: int) -> None:
    """As much of F as the half that one draw needs may lie below all draws, where scores are at least 0."""
    scores, trials = SCORES[:count], np.arange(1, count + 1)
    _, _, high = EmpiricalDistribution.confidence_bands(
        scores, CONFIDENCE, 0.0, 1.0, method="ld_equal_tailed", generator=np.random.default_rng(0), n_jobs=1
    )
    curve = tuning_curve(scores)
    assert curve.low[0] == 0.0
    assert curve.low == pytest.approx(high.quantile_tuning_curve(trials))
    assert curve.high[-1] == 1.0  # of one draw, the band is everything: F at the draw is uniform


def test_nothing_is_known_of_an_upper_end_beyond_the_draws() -> None:
    curve = tuning_curve(SCORES)
    assert curve.high[-1] == 1.0
    assert 0 < curve.known_until < len(SCORES)
    assert tuning_curve([0.5]).known_until == 0


def test_the_band_holds_the_whole_true_curve_as_often_as_it_says() -> None:
    random, held, times = np.random.default_rng(5), 0, 400
    truth = 0.5 ** (1 / np.arange(1, 13))  # of the best of n uniform draws
    for _ in range(times):
        curve = tuning_curve(list(random.random(12)))
        held += all(low <= true <= high for low, true, high in zip(curve.low, truth, curve.high, strict=True))
    assert (
        CONFIDENCE - 0.06 < held / times < 0.97
    )  # three standard errors; the band of F holds exactly as often as said


@pytest.mark.parametrize("scores", [[], [0.5, 1.2], [float("nan")]])
def test_scores_outside_the_unit_interval_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="scores in"):
        tuning_curve(scores)
