"""Means and differences of several settings: over seeds, over seeds and images, and what stays open."""

import base64
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import brentq
from scipy.stats import binomtest

from ebclab.evaluation.answers import Answers, mean_and_std, score_of, table_of, wilson_interval
from ebclab.evaluation.comparison import Measurements, difference, few_seeds, in_words, mean_and_interval
from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval
from ebclab.interval import Interval
from ebclab.storage.reading import typed

ORDERED = torch.arange(141)


def over_seeds(*values: float) -> Measurements:
    """Runs of seeds 1, 2, ... of which only the scores are known."""
    return Measurements.of(range(1, len(values) + 1), values, [])


def with_answers(right: torch.Tensor, keys: torch.Tensor = ORDERED) -> Measurements:
    """Runs of seeds 1, 2, ... that were right where (R, n) ``right`` is."""
    answers = [Answers.of(row[None], keys) for row in right]
    return Measurements.of(range(1, len(right) + 1), right.double().mean(dim=1).tolist(), answers)


def drawn(seed: int, num_seeds: int = 3) -> torch.Tensor:
    return torch.rand(num_seeds, 141, generator=torch.Generator().manual_seed(seed)) < 0.9


@pytest.mark.parametrize("values", [[0.5, 0.6, 0.7], [0.91, 0.93, 0.92, 0.95, 0.9], [3.0, -4.0, 12.5]])
@pytest.mark.parametrize("compared", [1, 4])
def test_without_answers_the_interval_is_students(values: list[float], compared: int) -> None:
    found = mean_and_interval(over_seeds(*values), compared, is_rate=False)
    mean, error = sum(values) / len(values), stats.sem(values)
    low, high = stats.t.interval(1 - 0.05 / compared, len(values) - 1, loc=mean, scale=error)
    expected = (mean, low, high, error * math.sqrt(len(values)))
    assert (found.mean, found.low, found.high, found.std) == pytest.approx(expected)
    assert found.images is None


def test_the_interval_of_a_rate_ends_at_0_and_1_and_one_value_or_a_tie_has_none() -> None:
    found = mean_and_interval(over_seeds(0.2, 0.4), 1, is_rate=True)
    assert found == Interval(pytest.approx(0.3), 0.0, 1.0, std=pytest.approx(math.sqrt(0.02)))
    assert mean_and_interval(over_seeds(0.4), 1, is_rate=True) == Interval(0.4)
    assert mean_and_interval(over_seeds(0.5, 0.5), 1, is_rate=True) == Interval(0.5, std=0.0)


def test_with_answers_both_intervals_are_those_over_seeds_and_images() -> None:
    one, other = drawn(0), drawn(1)
    tables = [right.double().numpy() for right in (one, other)]
    found = mean_and_interval(with_answers(one), 4, is_rate=True)
    assert (found.low, found.high) == pytest.approx(mean_interval(tables[0], 0.05 / 4))
    assert found.images == 141
    gap = difference(with_answers(one), with_answers(other), 4)
    assert (gap.low, gap.high) == pytest.approx(difference_interval(*tables, 0.05 / 6))  # 4 settings, 6 differences
    assert gap.mean == pytest.approx(float(tables[0].mean() - tables[1].mean()))
    assert gap.images == 141


def test_a_tie_but_for_rounding_is_a_tie() -> None:
    one, other = over_seeds(0.3, 0.8), over_seeds(0.2, 0.7)
    gaps = {one.by_seed[seed] - other.by_seed[seed] for seed in (1, 2)}
    assert len(gaps) > 1
    assert difference(one, other, 2).verdict == "the same at every seed: no interval"
    assert mean_and_interval(over_seeds(0.1 + 0.2, 0.3), 1, is_rate=True).low is None


@pytest.mark.parametrize(("compared", "pairs"), [(2, 1), (4, 6)])
def test_without_answers_runs_with_the_same_seed_are_compared(compared: int, pairs: int) -> None:
    one, other = [0.71, 0.74, 0.73, 0.78], [0.70, 0.71, 0.74, 0.71]
    expected = stats.ttest_rel(one, other).confidence_interval(1 - 0.05 / pairs)
    gap = difference(over_seeds(*one), over_seeds(*other), compared)
    assert (gap.low, gap.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_only_common_seeds_give_an_interval() -> None:
    one = Measurements.of((1, 2, 3), (0.5, 0.6, 0.8), [])
    other = Measurements.of((3, 1), (0.6, 0.4), [])
    expected = stats.ttest_rel([0.5, 0.8], [0.4, 0.6]).confidence_interval(0.95)
    gap = difference(one, other, 2)
    assert (gap.low, gap.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert gap.mean == pytest.approx(1.3 / 2 - 0.5)  # of the same runs: seed 2, which one side lacks, is in neither


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (over_seeds(0.4), "one seed"),
        (Measurements.of((7, 8), (0.4, 0.5), []), "no seed in common"),
        (with_answers(drawn(1), ORDERED + 1), "scored on other images"),
    ],
)
def test_what_cannot_be_compared_says_why(other: Measurements, why: str) -> None:
    gap = difference(with_answers(drawn(0)), other, 2)
    assert (gap.low, gap.high, gap.verdict) == (None, None, why)


def test_answers_count_only_when_every_run_has_them_about_the_same_images() -> None:
    whole = [Answers.of(row[None], ORDERED) for row in drawn(0)]
    assert len(Measurements.of((1, 2, 3), (0.1, 0.2, 0.3), whole).answers) == 3
    assert Measurements.of((1, 2, 3), (0.1, 0.2, 0.3), [*whole[:2], None]).answers == {}
    moved = Answers.of(drawn(0)[:1], ORDERED + 1)
    assert Measurements.of((1, 2, 3), (0.1, 0.2, 0.3), [*whole[:2], moved]).answers == {}


def test_what_few_seeds_cannot_tell_is_the_sign_test() -> None:
    for num_seeds in (2, 3, 4):
        assert f"{stats.binomtest(num_seeds, num_seeds).pvalue:.0%} of such sweeps" in few_seeds(num_seeds)
    assert stats.binomtest(5, 5).pvalue > 0.05 > stats.binomtest(6, 6).pvalue
    assert few_seeds(5) == ""
    assert "no conclusion" in few_seeds(1)
    assert "best of 4" in in_words(4, 5, 141)
    assert "these 141" in in_words(4, 5, 141)
    assert "best of" not in in_words(1, 5, None)
    assert "at least 95 of 100 cases; with few seeds" in in_words(1, 3, 141)
    assert "at least 95 of 100 such sweeps" in in_words(4, 5, 141)
    assert "few seeds or a few hundred" not in in_words(1, 5, None)  # Student's: exact for normal scores


@pytest.mark.parametrize("num_images", [1, 7, 8, 9, 141])
def test_what_is_packed_comes_back(num_images: int) -> None:
    draw = torch.Generator().manual_seed(num_images)
    right = torch.rand(3, num_images, generator=draw) < 0.8
    answers = [Answers.of(row[None], torch.arange(num_images)) for row in right]
    assert np.array_equal(table_of(answers), right.double().numpy())
    assert all(len(base64.b64decode(each.right[0])) == (num_images + 7) // 8 for each in answers)
    plain = json.loads(json.dumps(answers[0].to_mapping()))
    assert typed(plain, Answers) == answers[0]


def test_a_probe_that_was_trained_several_times_is_right_as_often_as_it_was() -> None:
    right = torch.tensor([[True, False, True], [True, False, False]])
    answers = Answers.of(right, torch.arange(3))
    assert table_of([answers]).tolist() == [[1.0, 0.0, 0.5]]


def test_answers_about_other_images_or_in_another_order_have_another_hash() -> None:
    right, keys = torch.ones(1, 4, dtype=torch.bool), torch.tensor([5, 6, 7, 8])
    assert Answers.of(right, keys).images == Answers.of(~right, keys.clone()).images
    assert Answers.of(right, keys).images != Answers.of(right, keys.flip(0)).images
    assert Answers.of(right, keys).images != Answers.of(right[:, :3], keys[:3]).images


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"right": ["AA=="]}, "answers about 9 images in 1 bytes"),
        ({"right": ["no base64!"]}, "no base64"),
        ({"right": []}, "9 images, 0 times"),
        ({"num_images": 0}, "0 images"),
        ({"num_images": "many"}, "num_images"),
    ],
)
def test_what_cannot_be_answers_is_refused(changes: dict[str, Any], said: str) -> None:
    plain = Answers.of(torch.ones(1, 9, dtype=torch.bool), torch.arange(9)).to_mapping()
    with pytest.raises(ValueError, match=said):
        typed(plain | changes, Answers)


Z = 1.959963984540054  # 97.5 % point of the standard normal


@pytest.mark.parametrize(("right", "total"), [(0, 1), (1, 1), (9, 10), (360, 360), (8_123, 10_000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_equal_to_scipy(right: int, total: int, confidence: float) -> None:
    expected = binomtest(right, total).proportion_ci(confidence, method="wilson")
    assert wilson_interval(right / total, total, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_ends_are_where_the_score_test_is_just_accepted_inside_zero_and_one():
    accuracy, total = 0.7345, 360  # a mean over seeds need not be a whole number of images

    def excess(p: float) -> float:
        return abs(accuracy - p) - Z * math.sqrt(p * (1 - p) / total)

    expected = (brentq(excess, 1e-9, accuracy, xtol=1e-14), brentq(excess, accuracy, 1 - 1e-9, xtol=1e-14))
    assert wilson_interval(accuracy, total) == pytest.approx(expected, abs=1e-12)
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


@pytest.mark.parametrize("values", [[0.5, math.nan], [math.inf, 0.5, 0.25], [math.nan]])
def test_a_number_that_is_not_finite_has_no_mean(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"by_seed: a mean is over finite numbers, got \{\d: (nan|inf)\}; leave these"):
        mean_and_interval(over_seeds(*values), 1, is_rate=False)
