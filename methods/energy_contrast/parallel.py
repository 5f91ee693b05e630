"""Ranks: the only place that knows that other processes hold the rest of a batch. With one rank, nothing is exchanged.

The global batch is what all W ranks hold, in the order of their ranks: rank r has images r B to (r + 1) B - 1 of W B.

Why W ranks equal one. Every rank gathers the projections of all and computes the loss L of the global batch, so that
every rank holds the same L and, from the same values, writes the same queues, banks and controllers. The gradient is
that of one rank too. The backward of each exchange is its exact adjoint (for a gather: the sum over ranks of the
gradients of a share), so the W backward passes together differentiate ``sum_s L_s`` by the parameters theta_r that
rank r holds. DistributedDataParallel averages over r, and all copies are equal to theta:

    1/W sum_r d(sum_s L_s) / d theta_r = 1/W d(sum_s L_s) / d theta = 1/W d(W L) / d theta = dL / d theta

The same holds for losses that differ between ranks and average to L.

Random draws are made for the global batch from a generator whose state is the same on every rank, and each rank takes
its share: ``own_share(torch.randn(world_size() * B, ..., generator=generator))``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


def world_size() -> int:
    """Return W, the number of ranks that share a batch; 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this rank, from 0 to W - 1."""
    return dist.get_rank() if world_size() > 1 else 0


def own_share(whole: Tensor, dim: int = 0) -> Tensor:
    """Return this rank's share of a tensor that is the same on every rank.

    Args:
        whole: (..., W n, ...) with the global batch on axis ``dim``.
        dim: Axis of the images.

    Returns:
        (..., n, ...) a view.

    Raises:
        ValueError: If W does not divide the axis.

    >>> own_share(torch.arange(3))
    tensor([0, 1, 2])
    """
    num_ranks = world_size()
    if num_ranks == 1:
        return whole
    size, rest = divmod(whole.shape[dim], num_ranks)
    if rest:
        raise ValueError(
            f"batch: {num_ranks} ranks must share it evenly, got {whole.shape[dim]} rows; use a multiple of {num_ranks}"
        )
    return whole.narrow(dim, rank() * size, size)


def gather(share: Tensor, dim: int = 0) -> Tensor:
    """Return the global batch, on every rank, with its gradient: the inverse of ``own_share``.

    The gradient of a share is the sum over ranks of the gradients that reach it, which is what a batch on one rank
    would give (see above). Taking the own rank's gradient alone would lose the others' part.

    Args:
        share: (..., n, ...) with this rank's images on axis ``dim``, of equal shape on every rank.
        dim: Axis of the images; views (V, B, ...) are gathered along axis 1.

    Returns:
        (..., W n, ...) in the order of the ranks; ``share`` itself when W is 1.

    >>> gather(torch.arange(3))
    tensor([0, 1, 2])
    """
    if world_size() == 1:
        return share
    whole: Tensor = _Gather.apply(share, dim)
    return whole


def gather_parts(part: Tensor, count: int) -> Tensor:
    """Return (count, ...) rows, on every rank, that are split over ranks as by ``torch.tensor_split``.

    The parts differ by at most one row; the first ranks have the longer ones. Without gradient.

    Args:
        part: (n, ...) this rank's rows.
        count: Rows of all ranks.

    Returns:
        (count, ...) in the order of the ranks; ``part`` itself when W is 1.

    Raises:
        ValueError: If this rank does not hold as many rows as it should.

    >>> gather_parts(torch.arange(3), 3)
    tensor([0, 1, 2])
    """
    num_ranks = world_size()
    shorter, longer_parts = divmod(count, num_ranks)
    sizes = [shorter + (r < longer_parts) for r in range(num_ranks)]
    if len(part) != sizes[rank()]:
        raise ValueError(f"part: rank {rank()} of {num_ranks} holds {sizes[rank()]} of {count} rows, got {len(part)}")
    if num_ranks == 1:
        return part
    padded = part.new_zeros(max(sizes), *part.shape[1:])
    padded[: len(part)] = part.detach()
    return torch.cat([whole[:size] for whole, size in zip(gather(padded).chunk(num_ranks), sizes, strict=True)])


def sum_over_ranks(value: Tensor) -> Tensor:
    """Return the sum of every rank's ``value``, without gradient; ``value`` itself when W is 1.

    >>> sum_over_ranks(torch.ones(2))
    tensor([1., 1.])
    """
    if world_size() == 1:
        return value
    total = value.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class _Gather(torch.autograd.Function):
    """All-gather forward, all-reduce backward: plain collectives that every backend has."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        share = share.contiguous()
        shares = [torch.empty_like(share) for _ in range(world_size())]
        dist.all_gather(shares, share)
        return torch.cat(shares, dim=dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return own_share(sum_over_ranks(gradient), ctx.dim), None
