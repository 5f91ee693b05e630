"""Calibration of a classifier's probabilities.

A bin b contains n_b images whose confidences lie in [e_b, e_b+1), the last bin in [e_b, e_b+1]; acc_b is their
accuracy, conf_b their mean confidence. A confidence of exactly 1 is therefore in the last bin, as in Guo et al. (2017);
libraries that give it a separate bin (e.g. torchmetrics) differ only there.

Shapes: n images, K classes, B bins.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

TEMPERATURES = (0.01, 100.0)
"""Search range of the temperature."""

_CHUNK = 1 << 22  # random numbers drawn at a time


class BinTable(NamedTuple):
    """Statistics of the bins of a reliability diagram."""

    edges: Tensor  # (B + 1,) float64, ascending
    counts: Tensor  # (B,) int64, number of images in each bin
    confidences: Tensor  # (B,) float64, mean confidence; 0 in an empty bin
    accuracies: Tensor  # (B,) float64; 0 in an empty bin

    @property
    def gaps(self) -> Tensor:
        """(B,) acc_b - conf_b; positive where the classifier is underconfident."""
        return self.accuracies - self.confidences


def equal_width(num_bins: int) -> Tensor:
    """Return the edges (B + 1,) float64 of bins that divide [0, 1] evenly; 15 are customary (Guo et al., 2017)."""
    return torch.arange(num_bins + 1, dtype=torch.float64) / num_bins


def equal_mass(scores: Tensor, num_bins: int) -> Tensor:
    """Return edges float64 of bins with numbers of images as equal as possible (Nguyen & O'Connor, 2015).

    Equal confidences are never split between bins, so the result does not depend on the order of images; if many are
    equal, e.g. confidences of 1 of a very confident classifier, there are fewer bins. The last two edges are equal if
    the largest score has its own bin.
    """
    ordered = scores.double().sort().values
    starts = {float(ordered[place * len(ordered) // num_bins]) for place in range(num_bins)}
    return torch.tensor([*sorted(starts), float(ordered[-1])], dtype=torch.float64)


def bin_table(scores: Tensor, hits: Tensor, edges: Tensor) -> BinTable:
    """Return counts, mean confidence and accuracy of each bin (VEM eq. 16 and 17; Guo et al., 2017, section 2)."""
    bins, size = _bins(scores, edges), len(edges) - 1
    counts = torch.bincount(bins, minlength=size)
    sums = [torch.bincount(bins, weights=each.double(), minlength=size) for each in (scores, hits)]
    conf, acc = (total / counts.clamp_min(1) for total in sums)
    return BinTable(edges, counts, conf, acc)


def calibration_error(table: BinTable) -> float:
    """Return ``ECE = sum_b (n_b / n) |acc_b - conf_b|`` in [0, 1] (VEM eq. 18; Naeini et al., 2015).

    It is biased upwards: in a bin of few images the accuracy differs from the confidence by chance, and the absolute
    values do not cancel. ``calibrated_errors`` estimates the bias.
    """
    return float((table.counts * table.gaps.abs()).sum() / table.counts.sum())


def largest_error(table: BinTable) -> float:
    """Return ``MCE = max_b |acc_b - conf_b|`` over the non-empty bins (VEM eq. 19; Naeini et al., 2015)."""
    return float(table.gaps.abs().max())


def error_contributions(scores: Tensor, hits: Tensor, table: BinTable) -> Tensor:
    """Return ``sign(acc_b(i) - conf_b(i)) (hit_i - conf_i)``, (n,) float64, whose mean is the ECE of ``table``.

    They are the influence values of the ECE if no acc_b equals conf_b.
    """
    return table.gaps.sign()[_bins(scores, table.edges)] * (hits.double() - scores.double())


def classwise_contributions(probabilities: Tensor, labels: Tensor, num_bins: int) -> Tensor:
    """Return the contributions (n,) float64 of images to the classwise ECE, their mean (Kull et al., 2019, eq. 4).

    ``cwECE = (1/K) sum_k sum_b (n_bk / n) |fraction of class k in b - mean p_k in b|``, with bins of p_k of equal width
    in [0, 1]: it uses all probabilities, whereas the ECE uses the largest only.
    """
    edges, total = equal_width(num_bins), torch.zeros(len(labels), dtype=torch.float64)
    for k in range(probabilities.shape[1]):
        scores, hits = probabilities[:, k], labels == k
        total += error_contributions(scores, hits, bin_table(scores, hits, edges))
    return total / probabilities.shape[1]


def brier_contributions(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return ``sum_k (p_ik - [y_i = k])^2``, (n,) float64 in [0, 2] (Brier, 1950, eq. 2)."""
    wanted = functional.one_hot(labels, probabilities.shape[1]).double()
    return (probabilities.double() - wanted).square().sum(dim=1)


def nll_contributions(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``-log softmax(z_i)_{y_i}``, (n,) float64 nats."""
    return functional.cross_entropy(logits.double(), labels, reduction="none")


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the T that minimises ``-mean_i log softmax(z_i / T)_{y_i}`` (Guo et al., 2017, section 4.2).

    In b = 1 / T this is convex; the root of its derivative ``mean_i (sum_k p_ik(b) z_ik - z_i,y)`` is found by Brent's
    method. If the classifier is correct on every image (T would be 0), or worse than chance (infinity), there is no
    root, and the corresponding end of ``TEMPERATURES`` is returned.

    The images are neither training images of the classifier nor test images.
    """
    from scipy.optimize import brentq  # imported here: a quarter of a second, in every training process

    z = logits.double()
    right = z.gather(1, labels[:, None])[:, 0]

    def slope(log_inverse: float) -> float:
        weights = (math.exp(log_inverse) * z).softmax(dim=1)
        return float(((weights * z).sum(dim=1) - right).mean())

    coldest, hottest = (-math.log(temperature) for temperature in TEMPERATURES)
    if slope(coldest) <= 0:
        return TEMPERATURES[0]
    if slope(hottest) >= 0:
        return TEMPERATURES[1]
    return math.exp(-float(brentq(slope, hottest, coldest, xtol=1e-12)))


def calibrated_errors(scores: Tensor, edges: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Return samples (draws,) float64 of the ECE of a perfectly calibrated classifier with these confidences.

    In each draw, image i is correct with probability conf_i (consistency resampling: Broecker & Smith, 2007). Their
    mean is the upward bias of the ECE due to the finite number of images.
    """
    size, count = len(edges) - 1, len(scores)
    scores = scores.double().cpu()
    bins = _bins(scores, edges)
    expected = torch.bincount(bins, weights=scores, minlength=size)
    at_once = max(1, min(draws, _CHUNK // max(count, 1)))
    errors = []
    for start in range(0, draws, at_once):
        rows = min(at_once, draws - start)
        hits = torch.rand(rows, count, dtype=torch.float64, generator=generator) < scores
        right = torch.zeros(rows, size, dtype=torch.float64).index_add_(1, bins, hits.double())
        errors.append((right - expected).abs().sum(dim=1) / count)
    return torch.cat(errors)


def _bins(scores: Tensor, edges: Tensor) -> Tensor:
    """Return the bin (n,) int64 of each score; the last bin is closed."""
    return torch.bucketize(scores.double().contiguous(), edges[1:-1], right=True)
