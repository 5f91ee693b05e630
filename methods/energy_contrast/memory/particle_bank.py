"""A bank of unit vectors that serve as negatives and move from step to step.

Shapes: M particles, P size of a vector, C channels, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

CHUNK = 256  # images a pass while the bank is filled


class ParticleBank(nn.Module):
    """M unit vectors as a module buffer: moved, cast and saved with the method.

    A new bank holds ``b = z / |z|`` with z standard normal from torch's global generator: directions uniform on the
    sphere. ``fill`` replaces them by projections of images.

    Args:
        size: M, at least 2.
        vector_size: P.
        moving: Whether particles also have a velocity, 0 at first.

    Attributes:
        particles: (M, P) unit vectors; the same on every rank.
        velocity: (M, P), what a sampler with momentum keeps from step to step; None without.

    Raises:
        ValueError: If ``size`` is less than 2.

    >>> bool(ParticleBank(4, 2).particles.norm(dim=1).allclose(torch.ones(4)))
    True

    Source: VEM, algorithm 1, bank B; filling as in AdCo (arXiv:2011.08435), section 4.
    """

    particles: Tensor
    velocity: Tensor | None

    def __init__(self, size: int, vector_size: int, *, moving: bool = False) -> None:
        if size < 2:
            raise ValueError(f"bank_size: a bank needs two particles, got {size}; use 2 or more")
        super().__init__()
        self.register_buffer("particles", F.normalize(torch.randn(size, vector_size), dim=1))
        self.register_buffer("velocity", torch.zeros(size, vector_size) if moving else None)

    def store(self, particles: Tensor, velocity: Tensor | None = None) -> None:
        """Replace all particles (M, P), unit vectors, and the velocity (M, P), if the bank has one, by copies."""
        self.particles.copy_(particles)
        if self.velocity is not None and velocity is not None:
            self.velocity.copy_(velocity)

    @torch.no_grad()
    def fill(
        self,
        project: Callable[[Tensor], Tensor],
        draw: Callable[[int, Generator], Tensor],
        generator: Generator,
    ) -> None:
        """Replace all particles by the directions of projected views, at most ``CHUNK`` views at a time.

        Args:
            project: Maps images (n, C, H, W), n at least 2, to projections (n, P) of any length.
            draw: ``draw(n, generator)`` returns n views of training images.
            generator: Source of the draws; on W ranks its state must be the same on each.
        """
        for part in self.particles.tensor_split(-(-len(self.particles) // CHUNK)):
            part.copy_(F.normalize(project(draw(len(part), generator)).to(part.dtype), dim=1))
