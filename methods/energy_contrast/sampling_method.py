"""A method that trains with samples of an energy: what its watcher may ask of it beside the contract of all methods.

Shapes: N chains or images, M references, K steps of a chain, C channels, H x W pixels, P projection size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from energy_contrast.method import Batch, Method
from energy_contrast.samplers import Sampler, SamplerInfo, SamplerState, compiled


class ChainTrace(NamedTuple):
    """Chains of images at some moments of their way.

    Attributes:
        steps: Steps that each moment lies behind the start.
        positions: (moments, N, C, H, W).
        energies: (moments, N) in nats.
    """

    steps: tuple[int, ...]
    positions: Tensor
    energies: Tensor


class ImageEnergy(ABC):
    """What a method offers whose energy says how likely an image is: ``p(x)`` is proportional to ``exp(-E(x))``.

    An image's energy depends on no other image of its batch while the method is in eval mode.
    """

    @abstractmethod
    def encode_references(self, images: Tensor) -> Tensor:
        """Return what energies are measured against, (M, P), of reference images (M, C, H, W).

        A method whose energy needs no references returns (M, 0).
        """

    @abstractmethod
    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        """Return the energies (N,) in nats, up to a constant, of images (N, C, H, W); differentiable by the images.

        Args:
            images: What they are the energies of.
            references: What ``encode_references`` returned, (M, P).
        """


class SamplingMethod(Method):
    """A method whose negatives are samples: something moves by steps whose size may be changed while it trains.

    Attributes:
        step_scale: () multiplies the step size of the settings; saved with the weights, the same on every rank.
    """

    step_scale: Tensor

    def __init__(self, config: Any, encoder: nn.Module, num_classes: int = 0) -> None:
        super().__init__(config, encoder, num_classes)
        self.register_buffer("step_scale", torch.ones(()))
        self._compiled_step: Callable[..., tuple[SamplerState, SamplerInfo]] | None = None

    @abstractmethod
    def new_sampler(self) -> Sampler:
        """Return the sampler that the settings and ``step_scale`` describe."""

    def sampler(self) -> Sampler:
        """Return the method's sampler, its step compiled where ``compile_parts`` was called."""
        sampler = self.new_sampler()
        return sampler if self._compiled_step is None else sampler._replace(step=self._compiled_step)

    def compile_parts(self, **options: Any) -> None:
        """Compile the encoder, and the sampler's step with the gradients that it takes."""
        super().compile_parts(**options)

        def step(state: SamplerState, context: Any, noise: Tensor) -> tuple[SamplerState, SamplerInfo]:
            return self.new_sampler().step(state, context, noise)  # built while it is traced: nothing to compile anew

        self._compiled_step = compiled(step, **options)

    def scale_step(self, factor: float) -> None:
        """Multiply the step of the sampler by ``factor``."""
        self.step_scale.mul_(factor)

    def trace_chains(self, batch: Batch, generator: torch.Generator, num_steps: int) -> ChainTrace | None:
        """Let chains start from the first views of ``batch`` and watch them; None where no images move.

        Args:
            batch: On the method's device.
            generator: Source of the noise.
            num_steps: How many steps of the method's own sampler.
        """
        return None
