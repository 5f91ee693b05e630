"""How well scores tell images from outside from images from inside: AUROC, FPR at 95 % recall, AUPR.

Scores are larger for what looks like outside, and outside is the positive class, as in OpenOOD v1.5.

Shapes: m inside images, n outside images.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RECALL = 0.95


class Auroc(NamedTuple):
    """An area under the ROC curve with its structural components.

    Attributes:
        value: Chance that an outside image has a larger score than an inside image; ties count half.
        inside: (m,) float64, of each inside image the share of outside images with a larger score; mean ``value``.
        outside: (n,) float64, of each outside image the share of inside images with a smaller score; mean ``value``.
    """

    value: float
    inside: Tensor
    outside: Tensor


def auroc(inside: Tensor, outside: Tensor) -> Auroc:
    """Return the area under the ROC curve and what each image adds to it.

    ``A = 1/(mn) sum_i sum_j psi(x_i, y_j)`` with inside scores x, outside scores y, and psi = 1 where x < y, 1/2 where
    x = y, 0 otherwise. Components: ``V_i = 1/n sum_j psi(x_i, y_j)`` and ``W_j = 1/m sum_i psi(x_i, y_j)``; the
    variance of A is ``var(V) / m + var(W) / n``.

    Args:
        inside: (m,) scores.
        outside: (n,) scores.

    Raises:
        ValueError: A sample is empty, or has NaN.

    Source: DeLong, DeLong & Clarke-Pearson (1988), eq. 2, 4 and 5.
    """
    x, y = _checked(inside, outside)
    first, second = 1 - _share_below(y, x), _share_below(x, y)
    return Auroc(float(second.mean()), first, second)


def false_positive_rate(inside: Tensor, outside: Tensor, *, recall: float = RECALL) -> float:
    """Return the share of inside images that are flagged where so much of the outside is: FPR at 95 % recall.

    The threshold is the largest score t with ``1/n sum_j [y_j >= t] >= recall``; the result is
    ``1/m sum_i [x_i >= t]``.

    Args:
        inside: (m,) scores.
        outside: (n,) scores.
        recall: Share of outside images to flag, in (0, 1].

    Raises:
        ValueError: A sample is empty, or has NaN.

    Source: OpenOOD v1.5 (arXiv:2306.09301), whose code takes outside as the positive class. ODIN (arXiv:1706.02690) and
    Hendrycks & Gimpel (arXiv:1610.02136) take inside as the positive class: their number is the share of outside images
    that pass where 95 % of the inside passes, which is ``false_positive_rate(-outside, -inside)``.
    """
    x, y = _checked(inside, outside)
    ranked = y.sort(descending=True).values
    too_few = (torch.arange(1, len(y) + 1, dtype=torch.float64) / len(y) < recall).sum()
    return float((x >= ranked[too_few]).double().mean())


def precision_recall_area(positive: Tensor, negative: Tensor) -> float:
    """Return the area under the precision-recall curve, by trapezoids between neighbouring thresholds.

    ``sum_k (R_k - R_{k-1}) (P_k + P_{k-1}) / 2`` over all scores as thresholds, from the largest; R_0 = 0, P_0 = 1.
    AUPR-out is that of outside against inside; AUPR-in that of the negated scores of inside against outside.

    Args:
        positive: Scores of the class that is looked for, larger where it is likely.
        negative: Scores of the other class.

    Raises:
        ValueError: A sample is empty, or has NaN.

    Source: OpenOOD v1.5 (arXiv:2306.09301), as its code has it. Average precision, which does not interpolate
    (``sum_k (R_k - R_{k-1}) P_k``), is another number, mostly a little smaller.
    """
    x, y = _checked(negative, positive)
    scores, order = torch.cat([y, x]).sort(descending=True)
    found = (order < len(y)).cumsum(0).double()  # positives among the k largest
    last = torch.cat([scores[1:] != scores[:-1], scores.new_ones(1, dtype=torch.bool)])  # of its ties
    count = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    recall, precision = torch.cat([zero, found[last] / len(y)]), torch.cat([one, (found / count)[last]])
    return float(torch.trapezoid(precision, recall))


def _share_below(scores: Tensor, values: Tensor) -> Tensor:
    """Return of each value the share of scores below it, equal ones by half."""
    ordered = scores.sort().values
    twice = torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True)
    return twice.double() / (2 * len(scores))


def _checked(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Return both samples in float64 on the CPU, as finite as they were."""
    x, y = inside.double().cpu(), outside.double().cpu()
    if len(x) == 0 or len(y) == 0:
        raise ValueError(f"scores: both classes need an image, got {len(x)} inside and {len(y)} outside")
    missing = int(x.isnan().sum() + y.isnan().sum())
    if missing:
        raise ValueError(f"scores: must be numbers, got NaN for {missing} of {len(x) + len(y)} images")
    return x, y
