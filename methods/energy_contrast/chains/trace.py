"""Snapshots of new chains and their energies, for pictures.

Shapes: N chains, M references, C channels, H x W pixels, P projection size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from energy_contrast.chains.chains import Chains, move_chains
from energy_contrast.chains.energy import ChainEnergy
from energy_contrast.samplers import Sampler
from energy_contrast.sampling_method import ChainTrace


@torch.no_grad()
def trace_chains(
    sampler: Sampler,
    energy: ChainEnergy,
    start: Tensor,
    references: Any,
    generator: torch.Generator,
    num_steps: int,
) -> ChainTrace:
    """Return new chains at their start, halfway and at their end.

    Args:
        sampler: Takes a ``Staged`` as context.
        energy: Energy whose gradient moves the chains.
        start: (N, C, H, W) where chains of count 0 begin.
        references: (M, P) what the energy compares images with, or None.
        generator: Source of the noise.
        num_steps: Steps in all, at least 1.

    Source: ours.
    """
    counts = torch.zeros(len(start), dtype=torch.int32, device=start.device)
    moments, middle = [Chains(torch.arange(len(start)), counts, start, counts < 0)], num_steps // 2
    for part in (middle, num_steps - middle):
        context = energy.context(references)
        moments.append(move_chains(sampler, moments[-1], context, generator, num_steps=part)[0])
    positions = torch.stack([moment.position for moment in moments])
    energies = torch.stack([energy.whole(position, references) for position in positions])
    return ChainTrace((0, middle, num_steps), positions, energies)
