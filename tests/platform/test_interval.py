"""A number with its interval: one way to write it, turned round and in other units."""

import pytest

from ebclab.evaluation.objectives import difference_format, format_of
from ebclab.interval import PERCENT, POINTS, SHARE, Interval, NumberFormat


@pytest.mark.parametrize(
    ("objective", "low", "high", "shown"),
    [
        ("holdout_knn", 0.91, 0.978, "91.0% to 97.8%"),
        ("holdout_knn", 0.94421, 0.94424, "94.421% to 94.424%"),
        ("holdout_linear", 0.94421, 0.945, "94.4% to 94.5%"),
        ("effective_rank", 12.0, 12.5, "12.000 to 12.500"),
        ("effective_rank", 12.00001, 12.00002, "12.00001 to 12.00002"),
        ("effective_rank", 1.0, 1.0, "1.000 to 1.000"),
        ("effective_rank", None, 1.0, ""),
    ],
)
def test_an_interval_has_the_digits_that_its_ends_need(objective, low, high, shown):
    assert format_of(objective).ends(low, high) == shown


@pytest.mark.parametrize(
    ("form", "found", "shown"),
    [
        (SHARE, Interval(0.62, 0.61, 0.634), "62.0% (61.0% to 63.4%)"),
        (SHARE, Interval(0.62), "62.0%"),
        (PERCENT, Interval(0.62, 0.61, 0.634), "62.0 (61.0 to 63.4)"),
        (POINTS, Interval(0.012, -0.001, 0.02), "+1.2 points (-0.1 to +2.0)"),
        (NumberFormat(digits=".3g"), Interval(0.1234, 0.1, 0.1), "0.123 (0.1 to 0.1)"),
        (PERCENT, None, "-"),
    ],
)
def test_a_number_is_written_with_its_interval(form: NumberFormat, found: Interval | None, shown: str) -> None:
    assert form.interval(found, "-") == shown


def test_a_difference_without_an_interval_says_why() -> None:
    assert POINTS.difference(Interval(0.01, open="one seed")) == "+1.0 points, one seed"
    assert difference_format("effective_rank").difference(Interval(1.0, 0.5, 2.0)) == "+1.000 (+0.500 to +2.000)"


def test_a_difference_turned_round_has_its_ends_exchanged() -> None:
    assert -1 * Interval(0.2, -0.1, 0.3, 7, "", 0.5) == Interval(-0.2, -0.3, 0.1, 7, "", 0.5)
    assert 100.0 * Interval(0.5, None, None, std=0.25) == Interval(50.0, std=25.0)


@pytest.mark.parametrize(
    ("found", "is_noise", "verdict"),
    [
        (Interval(0.1, 0.01, 0.2), False, "beyond noise"),
        (Interval(0.1, -0.01, 0.2), True, "within noise"),
        (Interval(0.1, 0.0, 0.2), True, "within noise"),
        (Interval(0.1, open="one seed"), None, "one seed"),
    ],
)
def test_the_verdict_is_whether_the_interval_contains_nothing(found, is_noise, verdict):
    assert (found.is_noise, found.verdict) == (is_noise, verdict)
