"""Linear probes on frozen features.

Shapes: n training rows, m test rows, D features, K classes, S seeds, B rows of a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.errors import DataError
from ebclab.evaluation.linear_head import fit_head
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import STALLED, EpochProtocol, Protocol, SolvedProtocol
from ebclab.optimization.optimizers import eager
from ebclab.optimization.schedules import half_cosine

_log = logging.getLogger("ebclab.evaluation")


def linear_within(
    protocol: Protocol,
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    *,
    num_classes: int,
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
    if (train_y == train_y[0]).all():
        raise DataError(f"labels: a linear probe needs at least two classes, got only class {int(train_y[0])}")
    if isinstance(protocol, SolvedProtocol):
        classes, labels = torch.unique(train_y.cpu(), return_inverse=True)
        head = fit_head(train_x, labels, len(classes), l2, on_step=lambda: on_progress(0, 1, "linear"))
        logits = head.logits(test_x.cpu().double())  # (m, K)
        on_progress(1, 1, "linear")
        known = test_y.cpu()[:, None]
        return torch.stack([(classes[_largest(logits, top)] == known).any(dim=1)[None] for top in tops])
    weights, biases = train_layers(protocol, train_x, train_y, num_classes, seeds, on_progress)
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
