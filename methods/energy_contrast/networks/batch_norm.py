"""Batch norm whose statistics do not depend on how many ranks share a batch.

Shapes: B images of this rank, C channels, W ranks, G groups, N values of a channel in the global batch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from energy_contrast import parallel


class GlobalBatchNorm(_BatchNorm):
    """Batch norm over the global batch, whole or in groups; with one rank and one group it is torch's, bit for bit.

    ``y = weight (x - mean) / sqrt(var + eps) + bias`` while training with

    - one group: mean and variance over all ranks' images, ``mean = mean_r mean_r`` and
      ``var = mean_r var_r + var_r mean_r`` over ranks r, which hold equally many;
    - G groups: mean and variance of each of G contiguous groups of the global batch. The running statistics are updated
      by the mean over groups of means and of unbiased variances.

    Evaluation uses the running statistics and exchanges nothing. ``state_dict`` has torch's names and shapes.

    Args:
        num_features: C.

    Attributes:
        groups: G; set it with ``set_groups``.

    Raises:
        ValueError: From a pass in training, if ``check_groups`` refuses the batch.

    >>> norm = GlobalBatchNorm1d(3)
    >>> sorted(norm.state_dict()) == sorted(nn.BatchNorm1d(3).state_dict())
    True

    Source: Ioffe and Szegedy 2015 (arXiv:1502.03167), algorithm 1; groups as in MoCo (arXiv:1911.05722), section 3.3.
    Departs from the paper: MoCo's groups are the GPUs, and its checkpoints hold the running statistics of the first
    GPU; here they are the mean over groups, as in the authors' CIFAR-10 notebook.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)
        self.groups = 1

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, ...) over all axes but the second."""
        num_ranks = parallel.world_size()
        if not self.training or self.groups == num_ranks == 1:
            return super().forward(x)
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        check_groups(self.groups, num_ranks * len(x), num_ranks)
        y, mean, variance = self._normalise_together(x) if self.groups == 1 else self._normalise_in_groups(x)
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)
        return y

    def _normalise_together(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return y, and the mean and the unbiased variance (C,) of the global batch."""
        y, mean, variance = _NormaliseOverRanks.apply(x, self.weight, self.bias, self.eps)
        count = parallel.world_size() * x.numel() // x.shape[1]  # N
        return y, mean, variance * (count / (count - 1))

    def _normalise_in_groups(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return y, and the means over groups of their means and unbiased variances (C,)."""
        if x.numel() // x.shape[1] <= (groups := self.groups // parallel.world_size()):
            raise ValueError(
                f"batch_norm_groups: a group has one value of each channel, and no spread, got {self.groups}; "
                "use fewer groups, a larger batch or larger images"
            )
        y, statistics = _NormaliseInGroups.apply(x, self.weight, self.bias, groups, self.eps)
        mean, variance = parallel.gather(statistics, dim=1).mean(dim=1)
        return y, mean, variance


class GlobalBatchNorm1d(GlobalBatchNorm, nn.BatchNorm1d):
    """Batch norm of vectors (B, C) over the global batch; see ``GlobalBatchNorm``."""


class GlobalBatchNorm2d(GlobalBatchNorm, nn.BatchNorm2d):
    """Batch norm of maps (B, C, H, W) over the global batch and pixels; see ``GlobalBatchNorm``."""


def set_groups(network: nn.Module, groups: int) -> None:
    """Let every batch norm in ``network`` use the statistics of ``groups`` contiguous groups of the global batch.

    >>> norm = GlobalBatchNorm2d(3)
    >>> set_groups(norm, 4)
    >>> norm.groups
    4
    """
    for module in network.modules():
        if isinstance(module, GlobalBatchNorm):
            module.groups = groups


def groups_in(network: nn.Module) -> set[int]:
    """Return the numbers of groups that the batch norms of ``network`` use; empty when it has none.

    >>> groups_in(nn.Sequential(GlobalBatchNorm2d(3), nn.Linear(3, 1)))
    {1}
    """
    return {module.groups for module in network.modules() if isinstance(module, GlobalBatchNorm)}


def has_batch_norm(network: nn.Module) -> bool:
    """Return whether ``network`` has batch norm, ours or torch's, so that its output for an image depends on the batch.

    >>> has_batch_norm(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))), has_batch_norm(nn.GroupNorm(1, 2))
    (True, False)
    """
    return any(isinstance(module, _BatchNorm) for module in network.modules())


def require_groups(network: nn.Module, batch_size: int, num_ranks: int) -> None:
    """Check that the batch norms of ``network`` can split a global batch into their groups.

    Args:
        network: A network, or a whole method.
        batch_size: Images of the global batch.
        num_ranks: W.

    Raises:
        ValueError: As ``check_groups``.
    """
    for groups in groups_in(network):
        check_groups(groups, batch_size, num_ranks)


def check_groups(groups: int, batch_size: int, num_ranks: int) -> None:
    """Check that a global batch of ``batch_size`` images on ``num_ranks`` ranks can be split into ``groups``.

    Args:
        groups: G; 1 always fits.
        batch_size: Images of the global batch.
        num_ranks: W.

    Raises:
        ValueError: If G does not divide the batch, or W does not divide a G above 1.

    >>> check_groups(8, 256, 2)
    """
    if batch_size % groups:
        raise ValueError(
            f"batch_norm_groups: must divide the global batch of {batch_size} images, got {groups}; "
            f"use {_nearest(groups, batch_size, num_ranks)}"
        )
    if groups > 1 and groups % num_ranks:
        raise ValueError(
            f"batch_norm_groups: must be a multiple of the number of workers, {num_ranks}, got {groups}; "
            f"use {_nearest(groups, batch_size, num_ranks)}"
        )


def _nearest(groups: int, batch_size: int, num_ranks: int) -> int:
    """Return the number of groups nearest to ``groups`` that fits; 1, the whole batch, always does."""
    fitting = [g for g in range(1, batch_size + 1) if batch_size % g == 0 and (g == 1 or g % num_ranks == 0)]
    return min(fitting, key=lambda g: abs(g - groups))


class _NormaliseOverRanks(torch.autograd.Function):
    """Batch norm over all ranks, with torch's fused kernels and one exchange forward and one backward.

    With ``xhat = (x - mean) r``, ``r = 1 / sqrt(var + eps)`` and sums over the global batch,

        dL/dx = weight r (dL/dy - sum(dL/dy) / N - xhat sum(dL/dy xhat) / N)

    whose first term is torch's backward under fixed statistics; the others are ``shift + slope x``. The gradients of
    weight and bias are this rank's sums; averaging gradients over ranks adds the others'.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        unused = torch.zeros_like(weight), torch.zeros_like(weight)  # running statistics, to get float32 results
        own = torch.stack(torch.batch_norm_update_stats(x, *unused, 1.0))  # (2, C) mean, biased variance
        means, variances = parallel.gather(own[None]).unbind(1)  # (W, C)
        mean, variance = means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance)
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, variance = ctx.saved_tensors
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            dy, x, weight, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        count = parallel.world_size() * x.numel() // x.shape[1]  # N
        sum_dy_xhat, sum_dy = parallel.sum_over_ranks(torch.stack([dweight, dbias])) / count
        r = torch.rsqrt(variance + ctx.eps)
        slope = -weight * r * r * sum_dy_xhat
        shift = -weight * r * sum_dy - slope * mean
        pixels = (1,) * (x.dim() - 2)
        dx.add_(shift.view(-1, *pixels)).addcmul_(x, slope.view(-1, *pixels))
        return dx, dweight, dbias, None


class _NormaliseInGroups(torch.autograd.Function):
    """Batch norm of each of g groups of this rank in one call: groups are laid side by side as channels.

    Images (g n, C, ...) become (n, g C, ...), whose channels are normalised separately; weight and bias are repeated g
    times.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
        side_by_side = torch.cat(x.chunk(groups), dim=1)  # (n, g C, ...)
        weight, bias = torch.cat([weight] * groups), torch.cat([bias] * groups)  # (g C,)
        # With momentum 1, torch's running statistics become those of this batch's groups.
        statistics = torch.zeros(2, len(weight), dtype=weight.dtype, device=x.device)
        own_mean, own_variance = statistics
        y, mean, inverse = torch.native_batch_norm(
            side_by_side, weight, bias, own_mean, own_variance, training=True, momentum=1.0, eps=eps
        )
        ctx.save_for_backward(side_by_side, weight, mean, inverse)
        ctx.groups, ctx.eps = groups, eps
        statistics = statistics.view(2, groups, -1)  # mean and unbiased variance (g, C)
        ctx.mark_non_differentiable(statistics)
        return torch.cat(y.chunk(groups, dim=1)), statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        side_by_side, weight, mean, inverse = ctx.saved_tensors
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            torch.cat(dy.chunk(ctx.groups), dim=1),
            side_by_side,
            weight,
            None,
            None,
            mean,
            inverse,
            True,
            ctx.eps,
            [True, True, True],
        )
        dweight, dbias = (whole.view(ctx.groups, -1).sum(dim=0) for whole in (dweight, dbias))
        return torch.cat(dx.chunk(ctx.groups, dim=1)), dweight, dbias, None, None
