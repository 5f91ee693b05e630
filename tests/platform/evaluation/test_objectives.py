"""Values of objectives as text."""

from __future__ import annotations

import pytest

from ebclab.evaluation.objectives import shown_interval, shown_score


@pytest.mark.parametrize(
    ("objective", "low", "high", "shown"),
    [
        ("holdout_knn", 0.91, 0.978, "91.0% to 97.8%"),
        ("holdout_knn", 0.94421, 0.94424, "94.421% to 94.424%"),
        ("holdout_linear", 0.94421, 0.945, "94.4% to 94.5%"),
        ("effective_rank", 12.0, 12.5, "12.000 to 12.500"),
        ("effective_rank", 12.00001, 12.00002, "12.00001 to 12.00002"),
    ],
)
def test_an_interval_has_the_digits_that_its_ends_need(objective: str, low: float, high: float, shown: str) -> None:
    assert shown_interval(objective, low, high) == shown


def test_accuracies_are_per_cent() -> None:
    assert shown_score("holdout_knn", 0.9442) == "94.4%"
    assert shown_score("effective_rank", 3.14159) == "3.142"
