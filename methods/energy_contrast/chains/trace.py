"""Snapshots of long chains and their energies, for pictures and measures of samples.

Shapes: N chains, M references, S snapshots, C channels, H x W pixels, P projection size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from energy_contrast.chains.chains import Chains, move_chains
from energy_contrast.chains.energy import ChainEnergy
from energy_contrast.samplers import Sampler
from energy_contrast.sampling_method import ChainStart, ChainTrace


@torch.no_grad()
def trace_chains(
    sampler: Sampler,
    energy: ChainEnergy,
    start: ChainStart,
    references: Any,
    generator: torch.Generator,
    steps: Sequence[int],
    *,
    num_steps: int,
    on_step: Callable[[int], None] = lambda step: None,
) -> ChainTrace:
    """Return chains at each of ``steps``, as training moves one that always comes back from the buffer.

    Args:
        sampler: Takes a ``Staged`` as context.
        energy: Energy whose gradient moves the chains.
        start: Where they begin.
        references: (M, P) what the energy compares images with, or None; the same in all steps.
        generator: Source of the noise.
        steps: The numbers of steps after which snapshots are taken, ascending.
        num_steps: T, steps after which a chain's count is raised by 1.
        on_step: Called with the number of steps made.

    Source: ours.
    """
    context, rows = energy.context(references), torch.arange(len(start.position))
    chains = Chains(rows, start.counts, start.position, torch.zeros_like(rows, dtype=torch.bool))
    kept = [chains.position] if steps[0] == 0 else []
    for step in range(steps[-1]):

        def of_step(_: int, position: Tensor, step: int = step) -> Any:
            return context(step, position)

        chains, _ = move_chains(sampler, chains, of_step, generator, num_steps=1)
        if (step + 1) % num_steps == 0:
            chains = chains._replace(counts=chains.counts + 1)
        if step + 1 in steps:
            kept.append(chains.position)
        on_step(step + 1)
    positions = torch.stack(kept)
    energies = torch.stack([energy.whole(position, references) for position in positions])
    return ChainTrace(tuple(steps), positions, energies)
