"""Standard normal numbers without generator state: the Box-Muller transform of hashed counters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words


def standard_normal(words: Tensor, count: int) -> Tensor:
    """Return (n, count) float32 standard normal numbers, a pure function of ``words``.

    Each hash makes two of them: 32 bits choose the radius (6.7 at most), 32 the angle.

    Args:
        words: (n,) int64; one word an image.
        count: Numbers an image.
    """
    pairs = torch.arange((count + 1) // 2, device=words.device)
    bits = hash_words(words[:, None], pairs)  # (n, pairs)
    radius = (bits & 0xFFFFFFFF).float().add_(0.5).mul_(2.0**-32).log_().mul_(-2).sqrt_()
    angle = (bits >> 32).float().mul_(math.pi * 2.0**-31)  # signed: -pi to pi
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)], 1)[:, :count]
