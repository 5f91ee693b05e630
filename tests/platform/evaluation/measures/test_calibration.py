"""Calibration against closed forms, slow loops of the equations, scikit-learn and torchmetrics."""

import math
from itertools import pairwise

import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torch import Tensor
from torchmetrics.classification import MulticlassCalibrationError

from ebclab.evaluation.measures.calibration import (
    TEMPERATURES,
    bin_table,
    brier_contributions,
    calibrated_errors,
    calibration_error,
    classwise_contributions,
    equal_mass,
    equal_width,
    error_contributions,
    fit_temperature,
    largest_error,
    nll_contributions,
)


def _case(n: int = 600, classes: int = 4, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return logits (n, K) float64 that know something of the labels (n,), and the labels."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(classes, (n,), generator=generator)
    logits = torch.randn(n, classes, dtype=torch.float64, generator=generator) * scale
    logits[torch.arange(n), labels] += scale / 2
    return logits, labels


def _confidences(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    probabilities = logits.softmax(dim=1)
    scores, guesses = probabilities.max(dim=1)
    return scores, guesses == labels


def _slow_error(scores: Tensor, hits: Tensor, weights: Tensor, num_bins: int) -> float:
    """ECE by the equation, image by image; image i counts ``weights_i``, which add up to 1."""
    total = 0.0
    for b in range(num_bins):
        low, high = b / num_bins, (b + 1) / num_bins
        inside = [
            i for i, score in enumerate(scores.tolist()) if low <= score < high or (b + 1 == num_bins and score == 1)
        ]
        total += abs(sum(float(weights[i]) * (float(hits[i]) - float(scores[i])) for i in inside))
    return total


def test_a_classifier_with_known_bins_has_the_errors_worked_out_by_hand() -> None:
    # 10 images at .5, 7 right; 10 at .9, 6 right; 5 at .3, none right:
    # ECE = .4 |.7 - .5| + .4 |.6 - .9| + .2 |0 - .3| = .26, MCE = .3
    scores = torch.tensor([0.5] * 10 + [0.9] * 10 + [0.3] * 5, dtype=torch.float64)
    hits = torch.tensor([True] * 7 + [False] * 3 + [True] * 6 + [False] * 4 + [False] * 5)
    table = bin_table(scores, hits, equal_width(5))
    assert table.counts.tolist() == [0, 5, 10, 0, 10]
    assert table.accuracies.tolist() == pytest.approx([0, 0, 0.7, 0, 0.6])
    assert table.confidences.tolist() == pytest.approx([0, 0.3, 0.5, 0, 0.9])
    assert calibration_error(table) == pytest.approx(0.26)
    assert largest_error(table) == pytest.approx(0.3)


def test_a_confidence_of_one_is_in_the_last_bin_where_torchmetrics_gives_it_its_own() -> None:
    # one bin of 4: |3/4 - .995| = .245; two bins of 2: .5 |1/2 - 1| + .5 |1 - .99| = .255
    probabilities = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.99, 0.01], [0.99, 0.01]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 0])
    scores, guesses = probabilities.max(dim=1)
    assert calibration_error(bin_table(scores, guesses == labels, equal_width(15))) == pytest.approx(0.245)
    theirs = MulticlassCalibrationError(2, n_bins=15)(probabilities, labels)
    assert float(theirs) == pytest.approx(0.255, abs=1e-6)


def test_contributions_have_the_error_as_their_mean_and_are_its_influence_values() -> None:
    scores, hits = _confidences(*_case(n=150))
    table = bin_table(scores, hits, equal_width(15))
    contributions = error_contributions(scores, hits, table)
    even = torch.full((150,), 1 / 150, dtype=torch.float64)
    assert float(contributions.mean()) == pytest.approx(calibration_error(table), abs=1e-15)
    assert calibration_error(table) == pytest.approx(_slow_error(scores, hits, even, 15), abs=1e-12)
    step = 1e-6
    for i in (0, 40, 149):  # the derivative towards image i alone
        tilted = even * (1 - step)
        tilted[i] += step
        slope = (_slow_error(scores, hits, tilted, 15) - _slow_error(scores, hits, even, 15)) / step
        assert slope == pytest.approx(float(contributions[i]) - calibration_error(table), abs=1e-6)


def test_bins_of_equal_mass_hold_equally_many_images_and_divide_no_ties() -> None:
    scores, hits = _confidences(*_case(n=100))
    table = bin_table(scores, hits, equal_mass(scores, 7))
    assert sorted(table.counts.tolist()) == [14] * 5 + [15] * 2
    order = scores.argsort()
    expected, starts = 0.0, [k * 100 // 7 for k in range(8)]
    for first, last in pairwise(starts):
        rows = order[first:last]
        expected += abs(float((hits[rows].double() - scores[rows]).sum())) / 100
    assert calibration_error(table) == pytest.approx(expected, abs=1e-12)
    saturated = torch.cat([torch.linspace(0.1, 0.9, 10, dtype=torch.float64), torch.ones(90, dtype=torch.float64)])
    hits = torch.arange(100) % 2 == 0
    table = bin_table(saturated, hits, equal_mass(saturated, 10))
    assert table.counts.tolist() == [10, 90]
    turned = bin_table(saturated.flip(0), hits.flip(0), equal_mass(saturated.flip(0), 10))
    assert calibration_error(turned) == pytest.approx(calibration_error(table))
    same = torch.full((8,), 0.5)
    assert bin_table(same, same > 0, equal_mass(same, 4)).counts.tolist() == [8]


def test_the_classwise_error_is_its_equation() -> None:
    logits, labels = _case(n=120)
    probabilities, even = logits.softmax(dim=1), torch.full((120,), 1 / 120)
    slow = [_slow_error(probabilities[:, k], labels == k, even, 15) for k in range(4)]
    assert float(classwise_contributions(probabilities, labels, 15).mean()) == pytest.approx(sum(slow) / 4, abs=1e-7)


def test_brier_score_and_nll_agree_with_scikit_learn() -> None:
    logits, labels = _case()
    probabilities = logits.softmax(dim=1)
    by_class = [brier_score_loss((labels == k).numpy(), probabilities[:, k].numpy()) for k in range(4)]
    assert float(brier_contributions(probabilities, labels).mean()) == pytest.approx(sum(by_class), abs=1e-12)
    expected = log_loss(labels.numpy(), probabilities.numpy())
    assert float(nll_contributions(logits, labels).mean()) == pytest.approx(expected, abs=1e-12)


def test_the_temperature_is_the_best_of_a_fine_scan_with_its_closed_form_within_its_range():
    logits, labels = _case(scale=3.0)
    scan = torch.logspace(-1, 1, 4_001, dtype=torch.float64)  # each 0.115 % above the one before
    best = scan[min(range(4_001), key=lambda i: float(nll_contributions(logits / scan[i], labels).mean()))]
    assert fit_temperature(logits, labels) == pytest.approx(float(best), rel=6e-4)
    # logits (0, a), 70 of 100 in class 1: the likelihood is largest at sigmoid(a / T) = .7
    logits = torch.tensor([[0.0, 4.0]], dtype=torch.float64).repeat(100, 1)
    labels = (torch.arange(100) < 70).long()
    assert fit_temperature(logits, labels) == pytest.approx(4 / math.log(0.7 / 0.3), rel=1e-9)
    assert fit_temperature(3 * logits, labels) == pytest.approx(12 / math.log(0.7 / 0.3), rel=1e-9)
    logits = torch.tensor([[0.0, 4.0]]).repeat(10, 1)
    assert fit_temperature(logits, torch.ones(10, dtype=torch.int64)) == TEMPERATURES[0]
    assert fit_temperature(logits, torch.zeros(10, dtype=torch.int64)) == TEMPERATURES[1]


def test_a_calibrated_classifier_shows_the_error_that_chance_alone_makes() -> None:
    # two images at .5 in a bin: |right / 2 - .5| is .5 in half of all cases, else 0
    generator = torch.Generator().manual_seed(0)
    errors = calibrated_errors(torch.tensor([0.5, 0.5]), equal_width(2), 4_000, generator)
    assert set(errors.tolist()) == {0.0, 0.5}
    assert float(errors.mean()) == pytest.approx(0.25, abs=4 * 0.25 / 4_000**0.5)
    # images alone in their bins: 2 c (1 - c) each
    errors = calibrated_errors(torch.tensor([0.9, 0.4]), equal_width(2), 4_000, generator)
    assert float(errors.mean()) == pytest.approx((2 * 0.9 * 0.1 + 2 * 0.4 * 0.6) / 2, abs=0.02)
