"""Multi-label classifiers on frozen features, and their average precision (AP).

Each class k has its own logistic regression, fitted on the images that count for it (mark 1 or 0, not -1):

    L_k = mean_i log(1 + exp(-t_ik (w_k^T s_i + b_k))) + 0.5 l2 |w_k|^2,    t = 1 if an image has the class, else -1

with standardised features s; biases have no penalty.

AP of a class (Everingham et al., 2010, section 4.2) is computed over the images that count for it, ranked by their
score. Among the first k of them, t_k have the class, of P that have it in total: precision ``p_k = t_k / k``, recall
``r_k = t_k / P``. Interpolated precision at recall r is the maximum precision at that recall or above, ``q(r) = max
over k with r_k >= r of p_k``.

    11-point (PASCAL VOC until 2009):  AP = 1/11 sum over r in {0, 0.1, ..., 1} of q(r)
    area (PASCAL VOC from 2010 on):    AP = sum over k of (r_k - r_{k-1}) q(r_k)

Images of equal score have no order, so precision and recall are computed only after the last of them; the challenge's
own code ranks them in the order of its files.

Shapes: n training images, m other images, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ebclab.errors import DataError
from ebclab.evaluation.linear import PENALTIES, LinearHead, best_place, moments, solved
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.optimization.softmax_regression import SoftmaxRegression

Interpolation = Literal["11-point", "area"]


def fit_each_class(
    features: Tensor,
    marks: Tensor,
    is_held_out: Tensor,
    class_names: Sequence[str],
    on_progress: OnProgress = silent,
) -> LinearHead:
    """Return K binary classifiers as one head, whose logits (m, K) are the log-odds of each class.

    They are fitted on all images, features (n, D) and marks (n, K), with the penalty of largest mean 11-point AP on
    those that are held out, of equally good ones the strongest. Classes that no such image has do not count for it.
    """
    held_x, held_marks = features[is_held_out].double(), marks[is_held_out]
    means: list[float] = []
    for l2 in PENALTIES:
        logits = _fitted(features[~is_held_out], marks[~is_held_out], l2, class_names).logits(held_x)
        means.append(mean_precision(logits, held_marks, class_names))
        on_progress(len(means), len(PENALTIES), "penalty of the classifiers")
    return _fitted(features, marks, PENALTIES[best_place(means)], class_names)


def _fitted(features: Tensor, marks: Tensor, l2: float, class_names: Sequence[str]) -> LinearHead:
    mean, std = moments(features)
    x = (features.double() - mean) / std
    weights, biases = [], []
    for label, name in enumerate(class_names):
        counts = marks[:, label] >= 0
        y = (marks[:, label] == 1)[counts].long()
        if not 0 < int(y.sum()) < len(y):
            raise DataError(
                f"marks: a classifier of {name} needs training images with and without it, got {int(y.sum()):,} of "
                f"{len(y):,} with it; add images, or measure on another set"
            )
        found = solved(SoftmaxRegression(x[counts], y, 2), l2)
        weights.append(found.weights[:, 1] - found.weights[:, 0])
        biases.append(found.biases[1] - found.biases[0])
    scaled = torch.stack(weights, dim=1) / std[:, None]  # (D, K)
    return LinearHead(scaled, torch.stack(biases) - mean @ scaled, l2)


def mean_precision(scores: Tensor, marks: Tensor, class_names: Sequence[str]) -> float:
    """Return the mean 11-point AP of the classes that held-out images have, by scores (m, K) and marks (m, K)."""
    has = (marks == 1).any(dim=0)
    if not has.any():
        raise DataError(f"held-out images: one with a label is needed to choose by, got none among {len(marks):,}")
    names = [name for name, is_there in zip(class_names, has.tolist(), strict=True) if is_there]
    return float(average_precisions(scores[:, has], marks[:, has], "11-point", names).mean())


def average_precisions(
    scores: Tensor, marks: Tensor, interpolation: Interpolation, class_names: Sequence[str]
) -> Tensor:
    """Return the AP of each class, (K,) float64, by scores (m, K), over the images that count for it."""
    found = []
    for label, name in enumerate(class_names):
        counts = marks[:, label] >= 0
        relevant = marks[counts, label] == 1
        if not relevant.any():
            raise DataError(f"marks: an AP of {name} needs an image with it, got none of {int(counts.sum()):,}")
        found.append(average_precision(scores[counts, label], relevant, interpolation))
    return torch.tensor(found, dtype=torch.float64)


def average_precision(scores: Tensor, relevant: Tensor, interpolation: Interpolation) -> float:
    """Return AP, in [0, 1], of one class; the module docstring has the equations."""
    if scores.isnan().any():
        count = int(scores.isnan().sum())
        raise ValueError(f"scores: must be numbers, got NaN for {count:,} of {len(scores):,} images")
    positives = int(relevant.sum())
    if positives == 0:
        raise ValueError(f"relevant: at least one image must have the class, got 0 of {len(relevant):,}")
    order = scores.argsort(descending=True, stable=True)
    found = relevant[order].long().cumsum(dim=0)  # t_k
    ends = torch.cat([scores[order].diff() != 0, torch.ones(1, dtype=torch.bool, device=scores.device)])
    hits = found[ends]
    precision = hits.double() / (1 + ends.nonzero().flatten())
    best = precision.flip(0).cummax(dim=0).values.flip(0)  # q(r_k)
    if interpolation == "area":
        gained = hits.diff(prepend=hits.new_zeros(1))
        return float((gained * best).sum() / positives)
    tenths = torch.arange(11, device=scores.device)
    reached = torch.searchsorted(10 * hits, tenths * positives)  # first k with r_k >= r, in integers
    return float(best[reached].mean())
