"""Logistic regression on frozen features of a few labelled images, with the penalty chosen on these images alone.

Shapes: m labelled images, D features, K classes.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ebclab.data.label_lists import LabelList
from ebclab.evaluation.linear_head import PENALTIES, ChosenPenalty, HeadFitting, LinearHead, fit_head
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import SolvedProtocol

MOST_FOLDS = 5


class FewLabelsHead(NamedTuple):
    """A classifier fitted on the images of one list."""

    head: LinearHead
    # accuracies by cross-validation; none if a class has a single image, since it is then impossible
    chosen: ChosenPenalty


def num_folds(labels: LabelList) -> int:
    """Return the number of cross-validation folds of a list; 1 if it cannot be split."""
    return min(MOST_FOLDS, *labels.counts)


def few_labels_head(
    protocol: SolvedProtocol,
    x: Tensor,
    y: Tensor,
    labels: LabelList,
    *,
    usual_l2: float,
    on_progress: OnProgress = silent,
) -> FewLabelsHead:
    """Return the classifier fitted on a list, x (m, D) and y (m,), with the penalty best in cross-validation."""
    folds = num_folds(labels)
    chosen = ChosenPenalty(usual_l2, ())
    if folds > 1:
        chosen = _cross_validated(protocol, x, y, labels, folds, on_progress)
    return FewLabelsHead(fit_head(protocol, x, y, len(labels.counts), chosen.l2), chosen)


def _cross_validated(
    protocol: SolvedProtocol, x: Tensor, y: Tensor, labels: LabelList, folds: int, on_progress: OnProgress
) -> ChosenPenalty:
    """Return the penalty of highest accuracy when each fold is left out once; of equal ones the strongest."""
    right = [0] * len(PENALTIES)
    for number in range(folds):
        part = labels.fold(number, folds)
        fitting = HeadFitting(protocol, x[~part], y[~part], len(labels.counts))
        for place, head in enumerate(fitting.path()):
            right[place] += int((head.logits(x[part].double()).argmax(dim=1) == y[part]).sum())
        on_progress(number + 1, folds, f"part left out to choose a penalty for {len(y):,} labels")
    best = max(range(len(PENALTIES)), key=lambda place: right[place])
    return ChosenPenalty(PENALTIES[best], tuple(count / len(y) for count in right))
