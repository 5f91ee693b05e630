"""A copy of a network that follows it slowly and never learns by gradient."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def slow_copy(network: Network) -> Network:
    """Return a copy of a network whose weights take no gradient.

    ``theta' = theta``

    Args:
        network: The network to copy, with weights theta.

    Returns:
        The copy, with weights theta'.

    >>> [weight.requires_grad for weight in slow_copy(nn.Linear(2, 2)).parameters()]
    [False, False]

    Source: MoCo (arXiv:1911.05722), algorithm 1.
    """
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, *, momentum: float) -> None:
    """Move a copy's weights towards those of its network; its buffers, such as running statistics, are left alone.

    ``theta' <- m theta' + (1 - m) theta``

    Args:
        average: The copy, with weights theta'.
        network: The network that it follows, with weights theta.
        momentum: m, the share of itself that the copy keeps, from 0 to 1.

    >>> network = nn.Linear(1, 1)
    >>> average = slow_copy(network)
    >>> _ = nn.init.constant_(network.weight, 1.0), nn.init.constant_(average.weight, 0.0)
    >>> follow(average, network, momentum=0.75)
    >>> average.weight.item()
    0.25

    Source: MoCo (arXiv:1911.05722), eq. 2.
    """
    averages, weights = tuple(average.parameters()), tuple(network.parameters())
    if averages:
        torch._foreach_lerp_(averages, weights, 1 - momentum)  # one fused operation for all weights
