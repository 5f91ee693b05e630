"""Detectors against their equations in float64, a row at a time."""

import math

import numpy
import pytest
import torch
from scipy import special
from sklearn import metrics
from torch import Tensor

from ebclab.errors import DataError
from ebclab.evaluation.linear import LinearHead, fit_head
from ebclab.evaluation.measures.out_of_distribution import (
    Detector,
    auroc,
    auroc_interval,
    false_positive_rate,
    fit_detectors,
    precision_recall_area,
)

CLASSES = 3


def training(size: int = 6, count: int = 90) -> tuple[Tensor, Tensor]:
    """Return features around a mean for each class, and labels."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % CLASSES
    means = 2 * torch.randn(CLASSES, size, generator=generator) + 1
    return means[labels] + torch.randn(count, size, generator=generator), labels


def others(size: int = 6) -> Tensor:
    return 3 * torch.randn(7, size, generator=torch.Generator().manual_seed(2))


X, Y = training()
HEAD = fit_head(X, Y, CLASSES, 1e-2)
FITTED, _ = fit_detectors(X, Y, HEAD)


def scored(fitted: list[Detector], name: str, features: Tensor, head: LinearHead) -> Tensor:
    (detector,) = (each for each in fitted if each.name == name)
    return detector.score(features, head.logits(features.double())).double()


def check(name: str, expected: list[float], features: Tensor | None = None) -> None:
    found = scored(FITTED, name, others() if features is None else features, HEAD)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=2e-5, atol=1e-6)


def logits(row: Tensor) -> list[float]:
    return [float(row.double() @ HEAD.weights[:, k] + HEAD.biases[k]) for k in range(CLASSES)]


def probabilities(row: Tensor) -> list[float]:
    total = sum(math.exp(each) for each in logits(row))
    return [math.exp(each) / total for each in logits(row)]


def test_detectors_of_logits() -> None:
    rows = others()
    check("max-probability", [-max(probabilities(row)) for row in rows])
    check("max-logit", [-max(logits(row)) for row in rows])
    check("energy", [-math.log(sum(math.exp(each) for each in logits(row))) for row in rows])
    cut = [[min(max(p, 1e-7), 1 - 1e-7) for p in probabilities(row)] for row in rows]
    check("gen", [sum(p**0.1 * (1 - p) ** 0.1 for p in row) / CLASSES for row in cut])


def test_distance_to_the_fiftieth_neighbour() -> None:
    unit = [row.double() / row.double().norm() for row in X]
    found = [sorted(float((row.double() / row.double().norm() - each).norm()) for each in unit) for row in others()]
    check("knn", [distances[49] for distances in found])


def distance(row: Tensor, mean: Tensor, covariance: Tensor) -> float:
    return float((row.double() - mean) @ torch.linalg.pinv(covariance, hermitian=True) @ (row.double() - mean))


def by_classes(x: Tensor, labels: Tensor, rows: Tensor) -> tuple[list[float], list[float]]:
    """Return Mahalanobis distances and relative ones, by covariances summed image by image."""
    x = x.double()
    means = [torch.stack([row for row, y in zip(x, labels, strict=True) if y == k]).mean(dim=0) for k in range(CLASSES)]
    within = sum(torch.outer(row - means[y], row - means[y]) for row, y in zip(x, labels.tolist(), strict=True)) / len(
        x
    )
    whole = sum(torch.outer(row - x.mean(dim=0), row - x.mean(dim=0)) for row in x) / len(x)
    nearest = [min(distance(row, mean, within) for mean in means) for row in rows]
    return nearest, [near - distance(row, x.mean(dim=0), whole) for near, row in zip(nearest, rows, strict=True)]


def test_mahalanobis_distances() -> None:
    nearest, relative = by_classes(X, Y, others())
    # pytorch-ood sums where a covariance averages, and halves the plain distance: the order is the same
    check("mahalanobis", [each / 2 / len(X) for each in nearest])
    check("relative-mahalanobis", [each / len(X) for each in relative])


def test_mahalanobis_distances_of_features_that_lie_in_few_directions() -> None:
    """Where float32 inverts their covariance as it is, these distances are negative, or rounding."""
    x, labels = training(size=6, count=400)
    wide = torch.randn(6, 96, generator=torch.Generator().manual_seed(3))
    flat, rows = 30 * x @ wide + 50, 30 * others() @ wide + 50
    fitted, _ = fit_detectors(flat, labels, fit_head(flat, labels, CLASSES, 1e-2))
    nearest, relative = by_classes(x, labels, others())  # the same in the six coordinates that they come from
    for name, expected in (("mahalanobis", [each / 2 for each in nearest]), ("relative-mahalanobis", relative)):
        found = scored(fitted, name, rows, HEAD_OF_NOTHING) * len(x)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-3, atol=1e-3)
    (detector,) = (each for each in fitted if each.name == "mahalanobis")
    assert "in the 6 of 96 directions" in detector.protocol


HEAD_OF_NOTHING = LinearHead(
    torch.zeros(96, CLASSES, dtype=torch.float64), torch.zeros(CLASSES, dtype=torch.float64), 0
)


def residual(row: Tensor) -> float:
    """Return the length of what the three largest principal directions leave of a row, about the origin of ViM."""
    origin = -torch.linalg.pinv(HEAD.weights.T) @ HEAD.biases
    centred = X.double() - origin
    _, _, directions = torch.linalg.svd(centred)  # rows, from the largest
    left = row.double() - origin
    return float((left - directions[:3].T @ directions[:3] @ left).norm())


def test_virtual_logits() -> None:
    alpha = sum(max(logits(row)) for row in X) / sum(residual(row) for row in X)
    check("vim", [alpha * residual(row) - math.log(sum(map(math.exp, logits(row)))) for row in others()])


def test_distance_to_decision_boundaries() -> None:
    def score(row: Tensor) -> float:
        values = logits(row)
        top = values.index(max(values))
        lengths = [float((HEAD.weights[:, top] - HEAD.weights[:, k]).norm()) for k in range(CLASSES)]
        total = sum((values[top] - values[k]) / lengths[k] for k in range(CLASSES) if k != top)
        return -total / 2 / float((row.double() - X.double().mean(dim=0)).norm())

    check("fdbd", [score(row) for row in others()])


def test_of_two_classes_neither_is_outside() -> None:
    """A solver of two classes gives one logit; with the other at 0, the energy of all its images would be high."""
    x, labels = training()
    kept = labels < 2
    head = fit_head(x[kept], labels[kept], 2, 1e-2)
    torch.testing.assert_close(head.weights.sum(dim=1), torch.zeros(6, dtype=torch.float64))
    assert float(head.biases.sum()) == pytest.approx(0)
    assert float(HEAD.weights.sum(dim=1).abs().max()) < 1e-6
    assert abs(float(HEAD.biases.sum())) < 1e-6


def test_virtual_logits_of_features_whose_residual_float32_cannot_see() -> None:
    """Features far from 0: an orthogonal turn and exact float64 sums leave the scores as they are."""
    x, labels = training(size=6, count=400)
    scale = torch.logspace(0, -3, 6)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q
    flat, rows = (((each * scale).double() @ turn + 30).float() for each in (x, others()))
    head = fit_head(flat, labels, CLASSES, 1e-2)
    origin = -torch.linalg.pinv(head.weights.T) @ head.biases
    _, _, directions = torch.linalg.svd(flat.double() - origin)

    def left(z: Tensor) -> Tensor:
        return (z.double() - origin) @ directions[3:].T

    alpha = head.logits(flat.double()).amax(dim=1).mean() / left(flat).norm(dim=1).mean()
    expected = alpha * left(rows).norm(dim=1) - head.logits(rows.double()).logsumexp(dim=1)
    found = scored(fit_detectors(flat, labels, head)[0], "vim", rows, head)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("turned", [False, True])
def test_features_without_a_residual_leave_vim_out(turned: bool) -> None:
    x, labels = training()
    x[:, 2:] = 0  # as of units that never fire
    if turned:  # nothing but rounding is left
        x = x @ torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3))).Q
    fitted, remarks = fit_detectors(x, labels, fit_head(x, labels, CLASSES, 1e-2))
    assert "vim" not in [each.name for each in fitted]
    assert remarks == [
        "ViM is left out: training features span half as many directions as they have, without any residual."
    ]


def test_too_few_or_equal_images_are_one_sentence() -> None:
    with pytest.raises(
        DataError, match=r"training images: 50 are needed for 50 neighbours, got 49; measure on a larger"
    ):
        fit_detectors(X[:49], Y[:49], HEAD)
    with pytest.raises(DataError, match="features: those of all images of a class are the same"):
        fit_detectors(torch.ones(60, 6), torch.arange(60) % CLASSES, HEAD)


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
