"""A linear classifier on frozen features as an object: fitted to convergence, its penalty chosen on held-out images.

``L = -mean_i log softmax(W^T s_i + b)_{y_i} + 0.5 l2 |W|^2`` with standardised features s; biases are free.

Shapes: n training rows, m other rows, D features, K classes.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ebclab.errors import DataError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import LbfgsProtocol

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

_log = logging.getLogger("ebclab.evaluation")

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Values of l2 that ``choose_penalty`` tries, the strongest first."""


@dataclass(frozen=True)
class LinearHead:
    """Weights of a linear classifier on features as they come from the encoder.

    Attributes:
        weights: (D, K) float64.
        biases: (K,) float64.
        l2: Penalty that it was fitted with.
    """

    weights: Tensor
    biases: Tensor
    l2: float

    def logits(self, features: Tensor) -> Tensor:
        """Return (m, K) logits of (m, D) features, in the features' type and on their device."""
        return features @ self.weights.to(features) + self.biases.to(features)


class ChosenPenalty(NamedTuple):
    """The penalty that was best on held-out images.

    Attributes:
        l2: The penalty; of equally good ones the strongest.
        accuracies: Share of held-out images that each of ``PENALTIES`` had right.
    """

    l2: float
    accuracies: tuple[float, ...]


def fit_head(protocol: LbfgsProtocol, x: Tensor, y: Tensor, num_classes: int, l2: float) -> LinearHead:
    """Return the classifier that minimises L on features ``x``.

    Args:
        protocol: Tolerance and largest number of iterations.
        x: (n, D) features.
        y: (n,) int64 in [0, num_classes).
        num_classes: K; every class needs an image, since nothing is known of the others.
        l2: Penalty.

    Raises:
        DataError: A class has no image.
    """
    missing = sorted(set(range(num_classes)) - set(y.tolist()))
    if missing:
        raise DataError(
            f"labels: a classifier needs an image of every class, got none of class {', '.join(map(str, missing[:5]))}"
            f"{' ...' if missing[5:] else ''}; add images, or measure on a dataset whose training part has all classes"
        )
    mean, std = moments(x)
    model = solved(protocol, (x.double() - mean) / std, y, l2)
    weights, biases = torch.from_numpy(model.coef_.T.copy()), torch.from_numpy(model.intercept_)
    if num_classes == 2:  # the solver gives one logit, of the second class against the first; logits always sum to 0
        weights, biases = torch.hstack([-weights / 2, weights / 2]), torch.cat([-biases / 2, biases / 2])
    scaled = weights / std[:, None]  # (D, K)
    return LinearHead(scaled, biases - mean @ scaled, l2)


def choose_penalty(
    protocol: LbfgsProtocol,
    train: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    num_classes: int,
    on_progress: OnProgress = silent,
) -> ChosenPenalty:
    """Return the penalty whose classifier is right about most held-out images.

    Args:
        protocol: Tolerance and largest number of iterations.
        train: Features (n, D) and labels (n,) that classifiers are fitted on.
        held_out: Features (m, D) and labels (m,) of training images that they are not fitted on.
        num_classes: K.
        on_progress: Called with penalties done, penalties in all.

    Raises:
        DataError: A class has no training image, or no image is held out.
    """
    x, y = held_out
    if len(x) == 0:
        raise DataError("held-out images: at least one is needed to choose a penalty, got 0")
    accuracies = []
    for l2 in PENALTIES:
        head = fit_head(protocol, *train, num_classes, l2)
        accuracies.append(float((head.logits(x.double()).argmax(dim=1) == y).double().mean()))
        on_progress(len(accuracies), len(PENALTIES), "penalty of the linear classifier")
    best = max(range(len(PENALTIES)), key=lambda place: accuracies[place])  # the first of equals
    return ChosenPenalty(PENALTIES[best], tuple(accuracies))


def moments(train: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations (D,) float64 of columns (n, D); 1 is the deviation of a constant column."""
    mean = train.mean(dim=0, dtype=torch.float64)
    std = train.double().std(dim=0, correction=0)
    return mean, torch.where(std > 1e-7 * mean.abs(), std, 1.0)  # below float32's rounding of the mean: constant


def solved(protocol: LbfgsProtocol, x: Tensor, y: Tensor, l2: float) -> LogisticRegression:
    """Return scikit-learn's fitted model; not to converge is a logged warning.

    Args:
        protocol: Tolerance and largest number of iterations.
        x: (n, D) float64 standardised features.
        y: (n,) int64.
        l2: Penalty.
    """
    from sklearn.exceptions import ConvergenceWarning  # a second to import, and not every probe needs it
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (len(x) * l2), tol=protocol.tolerance * l2, max_iter=protocol.max_iterations)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x.cpu().numpy(), y.cpu().numpy())
    for entry in caught:
        if issubclass(entry.category, ConvergenceWarning):
            _log.warning(
                "linear probe %s: not converged after %d of at most %d iterations, its accuracy may be low; "
                "a larger evaluation.linear_l2 (now %g) converges sooner",
                protocol.name,
                max(model.n_iter_),
                protocol.max_iterations,
                l2,
            )
        else:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    return model
