"""Rankings against hand-made cases, slow loops, scikit-learn, and a bootstrap."""

import numpy
import pytest
import torch
from scipy import special
from sklearn import metrics
from torch import Tensor

from ebclab.evaluation.measures.out_of_distribution import (
    auroc,
    auroc_interval,
    false_positive_rate,
    precision_recall_area,
)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def scores(seed: int, levels: int = 0) -> tuple[Tensor, Tensor]:
    """Return 83 inside and 57 outside scores; with ``levels``, many are equal."""
    generator = torch.Generator().manual_seed(seed)
    inside, outside = torch.randn(83, generator=generator), torch.randn(57, generator=generator) + 0.7
    return ((inside * levels).round(), (outside * levels).round()) if levels else (inside, outside)


APART, SAME = torch.arange(30.0), torch.zeros(30)
CASES = [scores(0), scores(1), scores(2, levels=2), scores(3, levels=1), (APART, APART + 30), (SAME, SAME[:20])]


def labelled(inside: Tensor, outside: Tensor) -> tuple[numpy.ndarray, numpy.ndarray]:
    labels = numpy.r_[numpy.zeros(len(inside)), numpy.ones(len(outside))]
    return labels, torch.cat([inside, outside]).double().numpy()


def test_a_ranking_by_hand_with_ties() -> None:
    inside, outside = tensor(1, 2, 2, 4), tensor(2, 3, 5)
    # pairs won, row by row: 1 < 2, 3, 5; 2 = 2 (half), < 3, < 5, twice; 4 < 5 only: 3 + 2.5 + 2.5 + 1 of 12
    found = auroc(inside, outside)
    assert found.value == pytest.approx(9 / 12)
    torch.testing.assert_close(found.inside, tensor(1, 2.5 / 3, 2.5 / 3, 1 / 3))
    torch.testing.assert_close(found.outside, tensor(2 / 4, 3 / 4, 1))
    # all three must be flagged for 95 %: from 2 on, which also flags three of four inside
    assert false_positive_rate(inside, outside) == 0.75
    # two of three are enough for 60 %: from 3 on, which flags the 4 alone
    assert false_positive_rate(inside, outside, recall=0.6) == 0.25
    # thresholds 5, 4, 3, 2, 1: recall 1/3, 1/3, 2/3, 1, 1; precision 1, 1/2, 2/3, 3/6, 3/7
    by_hand = (1 + 1) / 2 / 3 + (1 / 2 + 2 / 3) / 2 / 3 + (2 / 3 + 1 / 2) / 2 / 3
    assert precision_recall_area(outside, inside) == pytest.approx(by_hand)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_areas_and_rates_are_those_of_scikit_learn(case: int) -> None:
    inside, outside = CASES[case]
    labels, values = labelled(inside, outside)
    assert auroc(inside, outside).value == pytest.approx(metrics.roc_auc_score(labels, values), abs=1e-12)
    for recall in (0.95, 0.5, 1.0, 1e-9):
        flagged, found, _ = metrics.roc_curve(labels, values, drop_intermediate=False)
        expected = flagged[numpy.argmax(found >= recall)]
        assert false_positive_rate(inside, outside, recall=recall) == pytest.approx(expected, abs=1e-12)
    precision, recalls, _ = metrics.precision_recall_curve(labels, values)
    assert precision_recall_area(outside, inside) == pytest.approx(metrics.auc(recalls, precision), abs=1e-12)
    precision, recalls, _ = metrics.precision_recall_curve(1 - labels, -values)
    assert precision_recall_area(-inside, -outside) == pytest.approx(metrics.auc(recalls, precision), abs=1e-12)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_components_are_those_of_a_loop_over_all_pairs(case: int) -> None:
    inside, outside = (each.tolist() for each in CASES[case])
    won = [[1.0 if x < y else 0.5 if x == y else 0.0 for y in outside] for x in inside]
    found = auroc(*CASES[case])
    torch.testing.assert_close(found.inside, tensor(*[sum(row) / len(row) for row in won]))
    torch.testing.assert_close(found.outside, tensor(*[sum(column) / len(column) for column in zip(*won, strict=True)]))


def test_what_cannot_be_ranked_is_refused() -> None:
    with pytest.raises(ValueError, match="both classes need an image, got 0 inside and 2 outside"):
        auroc(tensor(), tensor(1, 2))
    with pytest.raises(ValueError, match="must be numbers, got NaN for 1 of 3 images"):
        false_positive_rate(tensor(1, float("nan")), tensor(1))


def draws(count: int, images: tuple[int, int], area_is: float, spread: float) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of normal scores with a known AUROC, Phi(shift / (1 + spread^2)^(1/2)), from a fixed seed."""
    generator = torch.Generator().manual_seed(7)
    shift = (1 + spread**2) ** 0.5 * float(special.ndtri(area_is))
    return [
        (torch.randn(images[0], generator=generator), spread * torch.randn(images[1], generator=generator) + shift)
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("images", "area_is", "spread"), [((180, 180), 0.9, 1), ((180, 180), 0.998, 1), ((500, 50), 0.99, 2)]
)
def test_an_interval_holds_the_true_area_in_about_95_of_100_draws(images, area_is, spread):
    """Of 600, 95 % has a standard error of 0.9 points. Student's, symmetric, holds it in 94, 84 and 71 %."""
    held = 0
    for inside, outside in draws(600, images, area_is, spread):
        interval = auroc_interval(auroc(inside, outside))
        held += interval[0] <= area_is <= interval[1]
    assert held / 600 >= 0.93


def test_an_interval_is_the_same_seen_from_the_other_side() -> None:
    """Negated scores have the AUROC 1 - A."""
    for area_is in (0.8, 0.998):
        for inside, outside in draws(5, (60, 90), area_is, 1):
            one = auroc_interval(auroc(inside, outside))
            other = auroc_interval(auroc(-inside, -outside))
            assert other == pytest.approx((1 - one[1], 1 - one[0]), abs=1e-12)


@pytest.mark.parametrize("images", [(500, 49), (49, 500)])
def test_fewer_than_fifty_images_of_a_kind_have_no_interval(images: tuple[int, int]) -> None:
    ((inside, outside),) = draws(1, images, 0.8, 1)
    assert auroc_interval(auroc(inside, outside)) is None
