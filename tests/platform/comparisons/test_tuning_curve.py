"""Tuning curves: against all subsets, against a library's own bands, and against a distribution that is known."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean, median

import numpy as np
import pytest
from opda.nonparametric import EmpiricalDistribution

from ebclab.comparisons.statistics import CONFIDENCE, tuning_curve

SCORES = [0.31, 0.12, 0.55, 0.47, 0.82, 0.66, 0.05]


def test_the_expected_best_of_n_is_the_mean_over_all_subsets() -> None:
    curve = tuning_curve(SCORES)
    assert curve.trials == tuple(range(1, 8))
    for n in curve.trials:
        assert curve.expected[n - 1] == pytest.approx(fmean(max(each) for each in combinations(SCORES, n)))


def test_the_median_of_one_draw_is_the_median() -> None:
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
