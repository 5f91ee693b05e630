"""Mutual information between two views of an image, by InfoNCE with a large pool of negatives (FlatNCE, footnote 6).

    I = log K - mean_i (log sum_j exp(s_ij / tau) - s_ii / tau)

over the second views j of all K images, image i's own among them, so that I is at most log K. It is a lower bound on
the mutual information for any tau, in expectation; the largest over ``TEMPERATURES`` is returned.

Shapes: K images, D size of a vector.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

TEMPERATURES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""Values of tau that are tried."""

MOST_IN_POOL = 16_384
"""Maximum number of images: every first view is compared with every second one."""

_BLOCK = 1_024  # first views at a time


class Information(NamedTuple):
    """An estimate of mutual information."""

    nats: float
    temperature: float  # the tau that gives the estimate
    bound: float  # log K, which it cannot exceed


def view_information(first: Tensor, second: Tensor, device: torch.device | str) -> Information:
    """Return the estimate for cosines of two views' vectors (K, D), computed in float32 on ``device``."""
    one, other = (functional.normalize(view, dim=1).float().to(device) for view in (first, second))
    return pool_information(one, other)


def pool_information(first: Tensor, second: Tensor, temperatures: tuple[float, ...] = TEMPERATURES) -> Information:
    """Return the largest estimate over ``temperatures``; s_ij is the inner product of first[i] and second[j]."""
    log_odds = torch.zeros(len(temperatures), dtype=torch.float64)
    for rows in torch.split(torch.arange(len(first)), _BLOCK):
        scores = first[rows] @ second.T  # (B, K)
        own = (first[rows] * second[rows]).sum(dim=1)  # (B,)
        for place, temperature in enumerate(temperatures):
            lost = torch.logsumexp(scores / temperature, dim=1) - own / temperature
            log_odds[place] += lost.sum(dtype=torch.float64).cpu()
    bound = math.log(len(first))
    found = bound - log_odds / len(first)
    best = int(found.argmax())
    return Information(float(found[best]), temperatures[best], bound)
