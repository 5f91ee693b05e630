"""Average precision against rankings worked out by hand, a slow loop of the definition, and its limits."""

from fractions import Fraction

import pytest
import torch

from ebclab.errors import DataError
from ebclab.evaluation.multi_label import Interpolation, average_precision, average_precisions

BOTH: tuple[Interpolation, Interpolation] = ("11-point", "area")


def slow(scores: list[float], relevant: list[bool], interpolation: Interpolation) -> Fraction:
    """The definition in fractions: at every threshold, the images at or above it."""
    positives = sum(relevant)
    points = []
    for threshold in sorted(set(scores), reverse=True):
        chosen = [has for score, has in zip(scores, relevant, strict=True) if score >= threshold]
        points.append((Fraction(sum(chosen), positives), Fraction(sum(chosen), len(chosen))))

    def best(recall: Fraction) -> Fraction:
        return max(precision for reached, precision in points if reached >= recall)

    if interpolation == "11-point":
        return sum((best(Fraction(tenth, 10)) for tenth in range(11)), Fraction(0)) / 11
    before, area = Fraction(0), Fraction(0)
    for recall, _ in points:
        area += (recall - before) * best(recall)
        before = recall
    return area


def test_rankings_worked_out_by_hand_have_the_best_precision_at_a_recall_or_above():
    # Ranks 1 to 5 hold: yes, no, yes, no, no; P = 2. Precision at the hits: 1 (recall 1/2) and 2/3 (recall 1).
    # 11-point: recalls 0 to 0.5 are six points of 1, 0.6 to 1 are five of 2/3. Area: 1/2 * 1 + 1/2 * 2/3.
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5])
    relevant = torch.tensor([True, False, True, False, False])
    assert average_precision(scores, relevant, "11-point") == pytest.approx((6 + 5 * 2 / 3) / 11, abs=1e-15)
    assert average_precision(scores, relevant, "area") == pytest.approx(5 / 6, abs=1e-15)
    # no, yes, yes: p = 0, 1/2, 2/3; at recall 1/2 the best at or above is 2/3, so both hits count 2/3.
    scores, relevant = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([False, True, True])
    assert average_precision(scores, relevant, "area") == pytest.approx(2 / 3, abs=1e-15)
    assert average_precision(scores, relevant, "11-point") == pytest.approx(2 / 3, abs=1e-15)
    # P = 10 and 3 hits on top, then 7 misses, then 7 hits: recall 3/10 is reached at precision 1. In floating point
    # 3 * 0.1 > 0.3, and the point would be missed. Recalls 0 to 0.3: 1; all above: best precision is 10/17.
    relevant = torch.tensor([True] * 3 + [False] * 7 + [True] * 7)
    scores = torch.arange(17.0).flip(0)
    assert average_precision(scores, relevant, "11-point") == pytest.approx((4 + 7 * 10 / 17) / 11, abs=1e-15)


@pytest.mark.parametrize("interpolation", BOTH)
@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_rankings_with_and_without_ties_are_those_of_the_slow_loop(interpolation: Interpolation, levels: int) -> None:
    generator = torch.Generator().manual_seed(levels)
    for _ in range(10):
        scores = torch.randint(levels, (40,), generator=generator).double()
        relevant = torch.rand(40, generator=generator) < 0.3
        expected = slow(scores.tolist(), relevant.tolist(), interpolation)
        assert average_precision(scores, relevant, interpolation) == pytest.approx(float(expected), abs=1e-14)


@pytest.mark.parametrize("interpolation", BOTH)
def test_an_image_may_have_several_classes_each_with_a_ranking_of_its_own(interpolation: Interpolation) -> None:
    scores = torch.tensor([[3.0, 1.0], [2.0, 3.0], [1.0, 2.0]])
    marks = torch.tensor([[1, 1], [1, 0], [0, 1]], dtype=torch.int8)
    # Class 0 is ranked perfectly. Class 1: no, yes, yes, where both hits count 2/3.
    expected = torch.tensor([1.0, 2 / 3], dtype=torch.float64)
    torch.testing.assert_close(average_precisions(scores, marks, interpolation, "ab"), expected, rtol=0, atol=1e-15)


def test_what_cannot_be_ranked_is_one_sentence() -> None:
    with pytest.raises(DataError, match="marks: an AP of b needs an image with it, got none of 2"):
        average_precisions(torch.zeros(2, 2), torch.tensor([[1, 0], [1, 0]]), "area", "ab")
    with pytest.raises(ValueError, match="relevant: at least one image must have the class, got 0 of 2"):
        average_precision(torch.zeros(2), torch.zeros(2, dtype=torch.bool), "area")
    with pytest.raises(ValueError, match="scores: must be numbers, got NaN for 1 of 2 images"):
        average_precision(torch.tensor([0.0, torch.nan]), torch.tensor([True, False]), "area")
