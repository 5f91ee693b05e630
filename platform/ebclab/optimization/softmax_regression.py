"""Minimum of multinomial logistic regression with an L2 penalty, by Newton's method.

    L(W, b) = -mean_i log softmax(W^T x_i + b)_{y_i} + 0.5 l2 |W|^2

L is strictly convex up to a constant added to all biases, which sum to 0 here, so the minimum is unique. A step d
solves ``H d = -g`` (g the gradient, H the Hessian) by conjugate gradients. Two measures make that cheap for many,
nearly collinear features:

- Features are rotated to their principal directions, which changes neither L nor its minimum. The preconditioner is
  the exact H on the leading directions, and the diagonal of H on the others.
- Products with H are in float32, since they only determine the direction of a step. L, g and the convergence test are
  in float64. If more than half of the gradient, measured in float64, remains after a step, products are in float64
  from then on.

Shapes: n rows, D features, K classes, A = min(n, D) + 1 columns, the constant first, B rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

LEADING = 2_048
"""Maximum number of unknowns, K per leading direction, for which the preconditioner has the exact Hessian."""

_ROWS = 512  # rows at a time: they stay in a core's cache between two products
_MANY = 20  # products with H in a step after which the preconditioner is recomputed
_MOST = 200  # maximum number of products with H in a step
_SHARE = 0.1  # relative residual at which conjugate gradients stop
_ROUNDING = 64 * torch.finfo(torch.float64).eps  # relative rounding error of L


class Minimum(NamedTuple):
    """Result of the minimisation."""

    weights: Tensor  # (D, K) float64
    biases: Tensor  # (K,) float64; they sum to 0
    steps: int  # number of Newton steps
    steepest: float  # largest absolute component of the gradient


class _Place(NamedTuple):
    """Unknowns (K, A) with L, its gradient ``slope`` (K, A) and the softmax ``shares`` (K, n), all float64."""

    unknowns: Tensor
    loss: float
    slope: Tensor
    shares: Tensor


class SoftmaxRegression:
    """Features and classes, prepared once for any number of penalties.

    Args:
        x: (n, D) float64 features, of similar variance.
        y: (n,) int64 in [0, num_classes).
        num_classes: K, at least 2.
    """

    def __init__(self, x: Tensor, y: Tensor, num_classes: int) -> None:
        self._directions = _principal_directions(x)  # (D, A - 1)
        turned = torch.hstack([torch.ones(len(x), 1, dtype=torch.float64), x @ self._directions])
        self._rows = {torch.float64: turned, torch.float32: turned.float()}  # (n, A)
        self._y, self._num_classes = y, num_classes

    def minimum(
        self,
        l2: float,
        *,
        tolerance: float,
        max_steps: int,
        start: tuple[Tensor, Tensor] | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> Minimum:
        """Return the minimum of L; for two classes the penalty is 0.5 l2 |w_1 - w_0|^2, as is customary.

        Args:
            l2: Penalty, above 0.
            tolerance: Iteration stops when no component of the gradient is larger, or float64 can lower neither L nor
                its gradient.
            max_steps: Largest number of steps.
            start: Initial weights (D, K) and biases (K,), instead of 0.
            on_step: Called after each step.
        """
        l2 = 2 * l2 if self._num_classes == 2 else l2  # W = (-w / 2, w / 2): 2 |W|^2 = |w|^2
        here = self._look(self._unknowns(start), l2)
        bend: _Preconditioner | None = None
        precision, products, steps = torch.float32, 0, 0
        while steps < max_steps and (steepest := self._steepest(here)) > tolerance:
            if bend is None or products > _MANY:
                bend = _Preconditioner(self._rows[precision], here.shares.to(precision), l2)
            direction, products = _conjugate_gradients(self._product(here, l2, precision), bend, here.slope)
            if precision == torch.float32:
                left = here.slope + self._product(here, l2, torch.float64)(direction)
                if bend.size(left) > bend.size(here.slope) / 4:  # rounding: over half of the gradient remains
                    precision, bend = torch.float64, None
                    continue
            there = self._lower(here, direction, l2)
            steps += 1
            on_step()
            if there is None or (there.loss >= here.loss and self._steepest(there) >= steepest):
                break  # float64 can lower neither L nor its gradient
            here = there
        weights, biases = self._directions @ here.unknowns[:, 1:].T, here.unknowns[:, 0].clone()
        return Minimum(weights, biases, steps, self._steepest(here))

    def _unknowns(self, start: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return unknowns (K, A) of weights and biases, with their mean over classes subtracted."""
        if start is None:
            return torch.zeros(self._num_classes, self._directions.shape[1] + 1, dtype=torch.float64)
        weights, biases = start
        unknowns = torch.vstack([biases, self._directions.T @ weights]).T
        return unknowns - unknowns.mean(dim=0)

    def _look(self, unknowns: Tensor, l2: float) -> _Place:
        rows = self._rows[torch.float64]
        log_shares = torch.log_softmax(unknowns @ rows.T, dim=0)  # (K, n)
        own = log_shares.gather(0, self._y[None])
        loss = -own.mean() + 0.5 * l2 * unknowns[:, 1:].square().sum()
        shares = log_shares.exp_()
        errors = shares.scatter_add(0, self._y[None], torch.full_like(own, -1.0))
        slope = errors @ rows / len(rows)
        slope[:, 1:] += l2 * unknowns[:, 1:]
        return _Place(unknowns, float(loss), slope, shares)

    def _steepest(self, place: _Place) -> float:
        """Return the largest absolute component of the gradient by biases and weights of the original features."""
        of_weights = self._directions @ place.slope[:, 1:].T
        return float(max(of_weights.abs().max(), place.slope[:, 0].abs().max()))

    def _product(self, place: _Place, l2: float, precision: torch.dtype) -> Callable[[Tensor], Tensor]:
        """Return the map of d (K, A) to ``H d``."""
        rows, shares = self._rows[precision], place.shares.to(precision)

        def product(d: Tensor) -> Tensor:
            found = l2 * d
            found[:, 0] = 0.0
            for part, share in _parts(rows, shares):
                change = share * (d @ part.T)  # (K, B)
                found.addmm_(change - share * change.sum(dim=0), part, alpha=1 / len(rows))
            return found

        return product

    def _lower(self, here: _Place, direction: Tensor, l2: float) -> _Place | None:
        """Return the first point of a backtracking line search with sufficient decrease of L; None if there is none."""
        expected = float((here.slope * direction).sum())
        for halvings in range(20):
            length = 0.5**halvings
            there = self._look(here.unknowns + length * direction, l2)
            if there.loss <= here.loss + 1e-4 * length * expected + _ROUNDING * abs(here.loss):
                return there
        return None


class _Preconditioner:
    """``M^-1`` for an approximation M of H: H itself for the leading columns, the diagonal of H for the others.

    Args:
        rows: (n, A), in the precision of the computation.
        shares: (K, n) softmax.
    """

    def __init__(self, rows: Tensor, shares: Tensor, l2: float) -> None:
        num_classes = len(shares)
        self._leading = leading = max(1, min(rows.shape[1], LEADING // num_classes))
        whole = rows.new_zeros(num_classes, leading, num_classes, leading)  # its lower triangle
        self._diagonal = rows.new_full((num_classes, rows.shape[1] - leading), l2)
        for part, share in _parts(rows, shares):
            first = part[:, :leading]  # (B, leading)
            for k in range(num_classes):
                bend = -share[k] * share[: k + 1]  # (k + 1, B)
                bend[k] += share[k]
                bent = (first[:, None] * bend.T[:, :, None]).flatten(1)  # (B, (k + 1) leading)
                whole[k, :, : k + 1].add_((first.T @ bent).view(leading, k + 1, leading), alpha=1 / len(rows))
            self._diagonal.addmm_(share * (1 - share), part[:, leading:].square(), alpha=1 / len(rows))
        whole[:, 0, :, 0] += 1 / num_classes  # for a constant added to all biases, on which L does not depend
        size = num_classes * leading
        whole = whole.view(size, size).double()
        whole.diagonal().view(num_classes, leading)[:, 1:] += l2
        factor, failed = torch.linalg.cholesky_ex(whole)
        if failed:  # rounding: use its diagonal
            factor = whole.diagonal().sqrt().diag()
        self._factor = factor.to(rows.dtype)
        self.dtype = rows.dtype

    def size(self, slope: Tensor) -> float:
        """Return the squared norm ``g^T M^-1 g`` of a gradient (K, A)."""
        residual = slope.to(self.dtype)
        return float((residual * self(residual)).sum())

    def __call__(self, residual: Tensor) -> Tensor:
        first, others = residual[:, : self._leading], residual[:, self._leading :] / self._diagonal
        solved = torch.cholesky_solve(first.reshape(-1, 1), self._factor).view(first.shape)
        return torch.hstack([solved, others - others.mean(dim=0)])


def _principal_directions(x: Tensor) -> Tensor:
    """Return orthonormal directions (D, min(n, D)) that span the rows of x, in order of decreasing variation."""
    if len(x) < x.shape[1]:
        directions: Tensor = torch.linalg.svd(x, full_matrices=False).Vh.T
    else:
        directions = torch.linalg.eigh(x.T @ x).eigenvectors.flip(1)
    return directions


def _parts(rows: Tensor, shares: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of rows, (B, A), with their softmax, (K, B)."""
    return zip(torch.split(rows, _ROWS), torch.split(shares, _ROWS, dim=1), strict=True)


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor], precondition: _Preconditioner, slope: Tensor
) -> tuple[Tensor, int]:
    """Return d (K, A) float64 with ``H d`` approximately ``-slope``, and the number of products with H."""
    scale = slope.square().sum().sqrt()
    residual = (-slope / scale).to(precondition.dtype)
    found = torch.zeros_like(residual)
    along = precondition(residual)
    size = first = (residual * along).sum()
    products = 0
    while products < _MOST:
        bent = product(along)
        products += 1
        bend = (along * bent).sum()
        if bend <= 0:  # due to rounding
            break
        found += size / bend * along
        residual -= size / bend * bent
        conditioned = precondition(residual)
        before, size = size, (residual * conditioned).sum()
        if size <= _SHARE**2 * first:
            break
        along = conditioned + size / before * along
    found = found.double() * scale
    return found - found.mean(dim=0), products  # biases sum to 0, free of float32 rounding
