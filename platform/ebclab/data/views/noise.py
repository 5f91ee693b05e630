"""Standard normal numbers without generator state: the Box-Muller transform of hashed counters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words

_PAIRS_CPU = 3 << 14
"""Pairs that are made at a time on a CPU: with temporaries 1 MiB, which stays in a core's cache."""


def standard_normal(words: Tensor, count: int) -> Tensor:
    """Return (n, count) float32 standard normal numbers, a pure function of ``words``.

    Each hash makes two of them: 32 bits choose the radius (6.7 at most), 32 the angle.

    Args:
        words: (n,) int64; one word an image.
    """
    pairs = torch.arange((count + 1) // 2, device=words.device)
    images = max(1, _PAIRS_CPU // len(pairs) if words.is_cpu else len(words))
    result = torch.empty(len(words), count, device=words.device)
    for some, numbers in zip(torch.split(words, images), torch.split(result, images), strict=True):
        bits = hash_words(some[:, None], pairs)  # (n, pairs)
        angle = (bits >> 32).float().mul_(math.pi * 2.0**-31)  # signed: -pi to pi
        radius = bits.bitwise_and_(0xFFFFFFFF).float().add_(0.5).mul_(2.0**-32).log_().mul_(-2).sqrt_()
        sine = angle.sin().mul_(radius)[:, : count - len(pairs)]
        torch.cat([angle.cos_().mul_(radius), sine], 1, out=numbers)
    return result
