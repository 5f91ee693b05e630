"""Batched matrix products whose rounding on a CPU depends neither on the number of products nor on that of threads."""

from __future__ import annotations

import torch
from torch import Tensor


def multiply(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the products (n, p, r) of matrices (n, p, q) and (n, q, r).

    MKL divides a product among threads if there are far fewer products than threads, and the parts may be rounded
    differently from the whole. Such a batch is filled up with copies of its first product until it does not.

    Args:
        left: (n, p, q), float32.
        right: (n, q, r), float32.
        out: (n, p, r), for the result; None allocates it.
    """
    enough = torch.get_num_threads() // 2 + 1  # MKL divides products if there are up to a third as many as threads
    if not left.is_cpu or not 0 < len(left) < enough:
        return torch.bmm(left, right, out=out)
    made = torch.bmm(_filled(left, enough), _filled(right, enough))[: len(left)]
    return made if out is None else out.copy_(made)


def _filled(matrices: Tensor, count: int) -> Tensor:
    """Return ``count`` matrices: the given ones, then copies of the first, transposed in memory as they are."""
    if matrices.stride(1) == 1 != matrices.stride(2):  # MKL rounds products with transposed factors in another way
        return _filled(matrices.transpose(1, 2), count).transpose(1, 2)
    return torch.cat([matrices, matrices[:1].expand(count - len(matrices), -1, -1)])
