"""Linear probes on frozen features: trained by a protocol, or fitted to convergence with a penalty of its own.

Of a few labelled images, the penalty is chosen by cross-validation on these images alone, else on held-out images.

``L = -mean_i log softmax(W^T s_i + b)_{y_i} + 0.5 l2 |W|^2`` with standardised features s; biases have no penalty. For
two classes the penalty is ``0.5 l2 |w_1 - w_0|^2``.

Shapes: n training rows, m test or other rows, D features, K classes, S seeds, B rows of a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.data.holdout import LabelList
from ebclab.errors import DataError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import LBFGS, STALLED, EpochProtocol, Protocol, SolvedProtocol
from ebclab.formatting import size as readable
from ebclab.hardware import free_bytes
from ebclab.optimization.optimizers import eager
from ebclab.optimization.schedules import half_cosine
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

    def logits(self, features: Tensor) -> Tensor:
        """Return (m, K) logits of (m, D) features, in the features' dtype and on their device."""
        return features @ self.weights.to(features) + self.biases.to(features)


@dataclass(frozen=True)
class TriedHeads:
    """Classifiers fitted with each of ``PENALTIES``, and what they achieve on images that they were not fitted on.

    Several penalties often have the same accuracy, with very different probabilities: whatever depends on these or on
    their gradients takes the classifier of least negative log-likelihood.
    """

    heads: tuple[LinearHead, ...]
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]  # mean -log of the right class's probability, in nats

    @property
    def most_accurate(self) -> LinearHead:
        """The one of highest accuracy, as Kornblith et al. (2019) choose."""
        return self.heads[best_place(self.accuracies)]

    @property
    def likeliest(self) -> LinearHead:
        return self.heads[best_place([-loss for loss in self.losses])]


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


class _HeadFitting:
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
    """Return the classifier that minimises L on features ``x``; the arguments are those of ``_HeadFitting``."""
    return _HeadFitting(x, y, num_classes).head(l2, start, on_step)


def try_penalties(
    train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor], num_classes: int, on_progress: OnProgress = silent
) -> TriedHeads:
    """Return the classifiers fitted with each of ``PENALTIES``, tried on held-out images."""
    fitting = _HeadFitting(*train, num_classes)
    heads: list[LinearHead] = []

    def report() -> None:
        on_progress(len(heads), len(PENALTIES), "penalty of the linear classifier")

    for head in fitting.path(report):
        heads.append(head)
        report()
    x, y = held_out
    x = x.double()
    accuracies, losses = list[float](), list[float]()
    for head in heads:  # one by one: the logits of many images and classes take gigabytes
        logits = head.logits(x)
        accuracies.append(float((logits.argmax(dim=1) == y).double().mean()))
        losses.append(float(functional.cross_entropy(logits, y)))
    return TriedHeads(tuple(heads), tuple(accuracies), tuple(losses))


def best_place(scores: Sequence[float]) -> int:
    """Return the place of the best of ``PENALTIES`` by the score of each; of equally good ones the strongest."""
    return scores.index(max(scores))


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
        for place, head in enumerate(_HeadFitting(x[~part], y[~part], classes).path()):
            right[place] += int((head.logits(x[part].double()).argmax(dim=1) == y[part]).sum())
        on_progress(number + 1, folds, f"part left out to choose a penalty for {len(y):,} labels")
    return fit_head(x, y, classes, PENALTIES[best_place(right)])


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


@dataclass(frozen=True)
class FeatureSplit:
    """Features and labels of both sets, all on one device."""

    train_x: Tensor  # (n, D) float32
    train_y: Tensor  # (n,) int64 in [0, num_classes)
    test_x: Tensor  # (m, D) float32
    test_y: Tensor  # (m,) int64 in [0, num_classes)
    test_keys: Tensor  # (m,) keys of the test images
    num_classes: int
    # answers of linear probes, so that each is trained once for its top 1 and top 5
    linear: dict[tuple[str, tuple[int, ...], float], Tensor] = field(default_factory=dict)


def linear_within(
    protocol: Protocol,
    split: FeatureSplit,
    *,
    seeds: Sequence[int],
    l2: float,
    tops: Sequence[int] = (1,),
    on_progress: OnProgress = silent,
) -> Tensor:
    """Return whether the label of each test row is among the largest logits, (T, S, m) bool for T values of ``tops``.

    S is 1 for lbfgs, which has no randomness; its penalty, 0.5 l2 ||W||^2 or of two classes 0.5 l2 ||w_1 - w_0||^2, is
    added to the mean cross-entropy. A seed determines its own initial weights and order of rows. All are trained in
    one batched computation on the features' device; up to rounding, no seed's result depends on the others.
    """
    train_y, test_x, test_y = split.train_y, split.test_x, split.test_y
    if (train_y == train_y[0]).all():
        raise DataError(f"labels: a linear probe needs at least two classes, got only class {int(train_y[0])}")
    if isinstance(protocol, SolvedProtocol):
        classes, labels = torch.unique(train_y.cpu(), return_inverse=True)
        head = fit_head(split.train_x, labels, len(classes), l2, on_step=lambda: on_progress(0, 1, "linear"))
        logits = head.logits(test_x.cpu().double())  # (m, K)
        on_progress(1, 1, "linear")
        known = test_y.cpu()[:, None]
        return torch.stack([(classes[_largest(logits, top)] == known).any(dim=1)[None] for top in tops])
    weights, biases = train_layers(protocol, split.train_x, train_y, split.num_classes, seeds, on_progress)
    logits = torch.matmul(test_x, weights) + biases  # (S, m, K)
    return torch.stack([(_largest(logits, top) == test_y[:, None]).any(dim=2) for top in tops])


def _largest(logits: Tensor, top: int) -> Tensor:
    """Return the columns (..., top) of the largest logits (..., K); of equal ones and top 1, the first, as argmax."""
    count = min(top, logits.shape[-1])
    return logits.argmax(dim=-1, keepdim=True) if count == 1 else logits.topk(count, dim=-1).indices


def train_layers(
    protocol: EpochProtocol,
    x: Tensor,
    y: Tensor,
    num_classes: int,
    seeds: Sequence[int],
    on_progress: OnProgress,
) -> tuple[Tensor, Tensor]:
    """Return weights (S, D, K) and biases (S, 1, K) of one linear layer per seed, trained in a single batch."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]  # on the CPU: the same on any device
    layer = _initial_layer(protocol, generators, x, num_classes)
    batch_size = min(protocol.batch_size, len(x))
    peak = protocol.learning_rate * (batch_size / 256 if protocol.scale_rate else 1.0)
    optimizer = _optimizer(protocol, layer, peak)
    steps = math.ceil(len(x) / batch_size)
    order, losses = torch.empty(0), list[Tensor]()
    running = torch.ones(len(seeds), dtype=torch.bool, device=x.device)  # seeds that have not converged
    found = [part.detach().clone() for part in layer]  # of a seed that has converged, its layer then
    for epoch in range(protocol.epochs):
        loss = torch.zeros(len(seeds), device=x.device)
        if epoch == 0 or protocol.order == "every-epoch":
            order = torch.stack([torch.randperm(len(x), generator=g) for g in generators]).to(x.device)  # (S, n)
        for step, rows in enumerate(torch.split(order, batch_size, dim=1)):  # rows (S, B)
            for group in optimizer.param_groups:
                group["lr"] = peak * rate_at(protocol, epoch + step / steps)
            loss += _step(layer, optimizer, x[rows], y[rows]) / len(x)
        losses.append(loss)
        for part, trained in zip(found, layer, strict=True):
            part[running] = trained.detach()[running]
        if protocol.tolerance and epoch >= STALLED:
            running &= losses[-1 - STALLED] - loss >= protocol.tolerance
        if not running.any():
            on_progress(protocol.epochs, protocol.epochs, "linear")
            break
        on_progress(epoch + 1, protocol.epochs, "linear")
    if protocol.tolerance and (count := int(running.sum())):
        _log.warning(
            "linear probe %s: %d of %d seeds not converged after %d epochs, their accuracy may be low",
            protocol.name,
            count,
            len(seeds),
            protocol.epochs,
        )
    weights, biases = found
    return weights, biases


def _step(layer: list[Tensor], optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    """Do one optimizer step of each seed's layer on its own mean cross-entropy; x (S, B, D), y (S, B).

    Returns the summed loss of each seed, (S,).
    """
    weights, biases = layer
    logits = torch.baddbmm(biases, x, weights)  # (S, B, K)
    losses = functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape).sum(dim=1)
    optimizer.zero_grad()
    (losses.sum() / y.shape[1]).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return losses.detach()


def rate_at(protocol: EpochProtocol, epoch: float) -> float:
    """Return the learning rate as a fraction of its peak after ``epoch`` epochs, which may be fractional."""
    share = epoch / protocol.epochs
    if protocol.schedule == "cosine":
        return half_cosine(share)
    if protocol.schedule == "steps":
        return 1.0 if share < 0.6 else 0.1 if share < 0.8 else 0.01
    return 1.0


def _initial_layer(
    protocol: EpochProtocol, generators: list[torch.Generator], x: Tensor, num_classes: int
) -> list[Tensor]:
    size = x.shape[1]
    weights = torch.empty(len(generators), size, num_classes)
    biases = torch.zeros(len(generators), 1, num_classes)
    bound = size**-0.5
    for weight, bias, generator in zip(weights, biases, generators, strict=True):
        if protocol.init == "normal":
            weight.normal_(0.0, 0.01, generator=generator)
        else:
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)
    return [part.to(x.device, x.dtype).requires_grad_() for part in (weights, biases)]


def _optimizer(protocol: EpochProtocol, layer: list[Tensor], learning_rate: float) -> torch.optim.Optimizer:
    if protocol.optimizer == "adam":
        return eager(torch.optim.Adam)(layer, lr=learning_rate)
    return eager(torch.optim.SGD)(layer, lr=learning_rate, momentum=0.9)
