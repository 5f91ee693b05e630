"""Counter-based randomness: a number is a pure function of the words that name it, with no generator state.

The hash of a sequence of words is output number ``word`` (its last word) of a SplitMix64 generator (Steele, Lea &
Flood, 2014, "Fast splittable pseudorandom number generators") seeded with the hash of the words before it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_INCREMENT = 0x9E3779B97F4A7C15
_FACTOR_1 = 0xBF58476D1CE4E5B9
_FACTOR_2 = 0x94D049BB133111EB
_PAIRS_CPU = 3 << 14  # normal numbers made at a time: with temporaries 1 MiB, which stays in a core's cache


def hash_words(*words: Tensor | int) -> Tensor:
    """Return 64 well-mixed bits (int64) for each combination of ``words``, int64 tensors or integers, which broadcast.

    Words are mixed from left to right, and their order matters; put the tensor with the most elements last, since
    earlier mixes stay small.
    """
    state: Tensor | int = 0
    for word in words:
        if isinstance(word, int):
            counted: Tensor | int = state + _signed((word + 1) * _INCREMENT)
        else:
            counted = (word + 1).mul_(_signed(_INCREMENT)).add(state)
        state = _mix(counted) if isinstance(counted, Tensor) else _mix_integer(counted)
    return state if isinstance(state, Tensor) else torch.tensor(state)


def unit_interval(bits: Tensor) -> Tensor:
    """Map hashed ``bits`` (int64) to float64 in [0, 1), uniform on the multiples of 2^-53."""
    return _shift_right(bits, 11).double().mul_(2.0**-53)


def integers_below(bits: Tensor, limit: Tensor | int) -> Tensor:
    """Map hashed ``bits`` (int64) to int64 in [0, limit); the bias is below limit / 2^53."""
    return (unit_interval(bits) * limit).long()


def standard_normal(words: Tensor, count: int) -> Tensor:
    """Return (n, count) float32 standard normal numbers, a pure function of ``words`` (n,) int64.

    Each hash makes two of them: 32 bits choose the radius (6.7 at most), 32 the angle.
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


def _mix(state: Tensor) -> Tensor:
    """Mix each element, in place; int64 products wrap modulo 2^64."""
    shifted = torch.empty_like(state)
    for places, factor in ((30, _FACTOR_1), (27, _FACTOR_2)):
        state.bitwise_xor_(_shift_right(state, places, shifted)).mul_(_signed(factor))
    return state.bitwise_xor_(_shift_right(state, 31, shifted))


def _mix_integer(state: int) -> int:
    """Mix one Python integer with the same result as `_mix`, without launching a kernel."""
    state %= 1 << 64
    state = (state ^ (state >> 30)) * _FACTOR_1 % (1 << 64)
    state = (state ^ (state >> 27)) * _FACTOR_2 % (1 << 64)
    return _signed(state ^ (state >> 31))


def _signed(bits: int) -> int:
    """Return the lowest 64 bits of ``bits`` as a signed integer, the only kind that torch accepts."""
    return (bits + (1 << 63)) % (1 << 64) - (1 << 63)


def _shift_right(bits: Tensor, places: int, out: Tensor | None = None) -> Tensor:
    """Logical shift right: torch's ``>>`` keeps the sign."""
    return torch.bitwise_right_shift(bits, places, out=out).bitwise_and_((1 << (64 - places)) - 1)
