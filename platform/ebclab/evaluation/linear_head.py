"""A linear classifier on frozen features, fitted to convergence, with its penalty chosen on held-out images.

Of a few labelled images, the penalty is chosen by cross-validation on these images alone.

``L = -mean_i log softmax(W^T s_i + b)_{y_i} + 0.5 l2 |W|^2`` with standardised features s; biases have no penalty. For
two classes the penalty is ``0.5 l2 |w_1 - w_0|^2``.

Shapes: n training rows, m other rows, D features, K classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ebclab.data.holdout import LabelList
from ebclab.errors import DataError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import LBFGS
from ebclab.formatting import size as readable
from ebclab.hardware import free_bytes
from ebclab.optimization.softmax_regression import Minimum, SoftmaxRegression

_log = logging.getLogger("ebclab.evaluation")

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Values of l2 that are tried, the strongest first."""

MOST_FOLDS = 5


@dataclass(frozen=True)
class LinearHead:
    """Weights of a linear classifier on unstandardised features of an encoder."""

    weights: Tensor  # (D, K) float64
    biases: Tensor  # (K,) float64
    l2: float  # penalty that it was fitted with
    # of each of ``PENALTIES``, on images that were not fitted on; none if the penalty was not chosen
    accuracies: tuple[float, ...] = ()

    def logits(self, features: Tensor) -> Tensor:
        """Return (m, K) logits of (m, D) features, in the features' dtype and on their device."""
        return features @ self.weights.to(features) + self.biases.to(features)


def require_every_class(y: Tensor, num_classes: int) -> None:
    """Refuse labels (n,) that lack a class, which no classifier could be fitted to."""
    missing = sorted(set(range(num_classes)) - set(y.tolist()))
    if missing:
        raise DataError(
            f"labels: a classifier needs an image of every class, got none of class "
            f"{', '.join(map(str, missing[:5]))}{' ...' if missing[5:] else ''}; add images, or measure on a "
            "dataset whose training part has all classes"
        )


def _require_memory(num_images: int, size: int, num_classes: int) -> None:
    """Refuse features (n, D) and K classes of which the solver holds more than the machine's free memory.

    It holds three float64 copies of the features when it begins; then one, one in float32, and (K, n) three times.
    """
    columns = min(num_images, size) + 1
    needed = num_images * max(24 * size, 12 * columns + 24 * num_classes)
    free = free_bytes(torch.device("cpu"))
    if needed > free:
        raise DataError(
            f"linear classifier: {num_classes:,} classes on {size:,} features of {num_images:,} images "
            f"do not fit into memory, got {readable(needed)} at least, {readable(free)} free; use fewer images, or "
            "for the linear probe another protocol than lbfgs"
        )


class HeadFitting:
    """Training features and labels of classifiers, standardised once for all penalties."""

    def __init__(self, x: Tensor, y: Tensor, num_classes: int) -> None:
        require_every_class(y, num_classes)
        _require_memory(len(x), x.shape[1], num_classes)
        self._mean, self._std = (part.cpu() for part in moments(x))
        self._regression = SoftmaxRegression((x.cpu().double() - self._mean) / self._std, y.cpu(), num_classes)

    def head(
        self, l2: float, start: LinearHead | None = None, on_step: Callable[[], None] = lambda: None
    ) -> LinearHead:
        """Return the classifier that minimises L; ``start`` affects the number of steps, not the solution."""
        unscaled = None
        if start is not None:
            unscaled = start.weights * self._std[:, None], start.biases + self._mean @ start.weights
        minimum = solved(self._regression, l2, unscaled, on_step)
        scaled = minimum.weights / self._std[:, None]  # (D, K)
        return LinearHead(scaled, minimum.biases - self._mean @ scaled, l2)

    def path(self, on_step: Callable[[], None] = lambda: None) -> Iterator[LinearHead]:
        """Yield the classifier of each of ``PENALTIES``, each initialised with that of the next stronger penalty."""
        head: LinearHead | None = None
        for l2 in PENALTIES:
            head = self.head(l2, head, on_step)
            yield head


def fit_head(
    x: Tensor,
    y: Tensor,
    num_classes: int,
    l2: float,
    start: LinearHead | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> LinearHead:
    """Return the classifier that minimises L on features ``x``; the arguments are those of ``HeadFitting``."""
    return HeadFitting(x, y, num_classes).head(l2, start, on_step)


def best_head(
    train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor], num_classes: int, on_progress: OnProgress = silent
) -> LinearHead:
    """Return the classifier of highest held-out accuracy among those fitted with each of ``PENALTIES``."""
    x, y = held_out
    fitting = HeadFitting(*train, num_classes)
    heads: list[LinearHead] = []

    def report() -> None:
        on_progress(len(heads), len(PENALTIES), "penalty of the linear classifier")

    for head in fitting.path(report):
        heads.append(head)
        report()
    accuracies = tuple(float((head.logits(x.double()).argmax(dim=1) == y).double().mean()) for head in heads)
    return replace(heads[PENALTIES.index(best_penalty(accuracies))], accuracies=accuracies)


def best_penalty(accuracies: Sequence[float]) -> float:
    """Return the best of ``PENALTIES`` by the accuracy of each; of equally good ones the strongest."""
    return PENALTIES[accuracies.index(max(accuracies))]


def num_folds(labels: LabelList) -> int:
    """Return the number of cross-validation folds of a list; 1 if it cannot be split."""
    return min(MOST_FOLDS, *labels.counts)


def few_labels_head(
    x: Tensor, y: Tensor, labels: LabelList, *, usual_l2: float, on_progress: OnProgress = silent
) -> LinearHead:
    """Return the classifier fitted on a list, x (m, D) and y (m,), with the penalty best in cross-validation.

    If a class has a single image, so that this is impossible, the penalty is ``usual_l2``.
    """
    classes, folds = len(labels.counts), num_folds(labels)
    if folds < 2:
        return fit_head(x, y, classes, usual_l2)
    right = [0] * len(PENALTIES)
    for number in range(folds):
        part = labels.fold(number, folds)
        for place, head in enumerate(HeadFitting(x[~part], y[~part], classes).path()):
            right[place] += int((head.logits(x[part].double()).argmax(dim=1) == y[part]).sum())
        on_progress(number + 1, folds, f"part left out to choose a penalty for {len(y):,} labels")
    accuracies = tuple(count / len(y) for count in right)
    return replace(fit_head(x, y, classes, best_penalty(accuracies)), accuracies=accuracies)


def moments(train: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations (D,) float64 of columns (n, D); the deviation of a constant column is 1."""
    mean = train.mean(dim=0, dtype=torch.float64)
    std = train.double().std(dim=0, correction=0)
    return mean, torch.where(std > 1e-7 * mean.abs(), std, 1.0)  # below float32 rounding of the mean: constant


def solved(
    regression: SoftmaxRegression,
    l2: float,
    start: tuple[Tensor, Tensor] | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> Minimum:
    """Return the minimum of L on standardised features; a warning is logged if the solver does not converge."""
    tolerance, most = LBFGS.tolerance_for(l2), LBFGS.max_iterations
    minimum = regression.minimum(l2, tolerance=tolerance, max_steps=most, start=start, on_step=on_step)
    if minimum.steps >= most and minimum.steepest > tolerance:
        _log.warning(
            "linear probe %s: not converged after %d of at most %d iterations, its accuracy may be low; "
            "a larger evaluation.linear_l2 (now %g) converges sooner",
            LBFGS.name,
            minimum.steps,
            most,
            l2,
        )
    return minimum
