"""Snapshots of long chains and their energies, for pictures and measures of samples; methods that give them.

Shapes: N chains, M references, S snapshots, C channels, H x W pixels, P projection size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from energy_contrast.chains.chains import Chains, move_chains
from energy_contrast.chains.energy import ChainEnergy
from energy_contrast.method import Batch
from energy_contrast.samplers import Sampler
from energy_contrast.sampling_method import ChainStart, ChainTrace, SamplingMethod


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


class TracedMethod(SamplingMethod):
    """A method whose samples are images: its chains can be run by themselves.

    Source: ours.
    """

    not_in_chunks = "its chains move through the network within a step, all of a batch at once"

    @abstractmethod
    def chain_energy(self, batch: Batch) -> tuple[ChainEnergy, Any]:
        """Return the energy whose gradient moves chains, and its references (M, P) from ``batch`` or None."""

    @torch.no_grad()
    def trace_chains(
        self,
        batch: Batch,
        start: ChainStart,
        generator: torch.Generator,
        steps: Sequence[int],
        on_step: Callable[[int], None] = lambda step: None,
    ) -> ChainTrace:
        """Run chains of the method's own sampler without restarts.

        Args:
            batch: Views that the references of the energy are of, on the method's device.
            start: Where the chains begin, there too.
            generator: Source of the noise.
            steps: The numbers of steps after which snapshots are taken, ascending.
            on_step: Called with the number of steps made.
        """
        energy, references = self.chain_energy(batch)
        sampler, num_steps = self.new_sampler(), self.config.num_steps
        return trace_chains(sampler, energy, start, references, generator, steps, num_steps=num_steps, on_step=on_step)
