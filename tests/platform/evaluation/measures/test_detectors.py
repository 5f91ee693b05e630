"""Detectors against their equations in float64, a row at a time."""

import math

import pytest
import torch
from torch import Tensor

from ebclab.errors import DataError
from ebclab.evaluation.linear import LinearHead, fit_head
from ebclab.evaluation.measures.out_of_distribution import Detector, fit_detectors

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
