"""Methods that train with samples of an energy: what they offer beyond ``Method``.

Shapes: N chains or images, M references, K steps of a chain, C channels, H x W pixels, P projection size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from energy_contrast.method import Method
from energy_contrast.samplers import Sampler, SamplerInfo, SamplerState, compiled


class ChainStart(NamedTuple):
    """Where chains of images begin.

    Attributes:
        position: (N, C, H, W).
        counts: (N,) int32 how often each has been started before, which noise may depend on.
    """

    position: Tensor
    counts: Tensor


class ChainTrace(NamedTuple):
    """Snapshots of chains of images.

    Attributes:
        steps: Number of sampler steps before each of the S snapshots.
        positions: (S, N, C, H, W).
        energies: (S, N) in nats.
    """

    steps: tuple[int, ...]
    positions: Tensor
    energies: Tensor


class ImageEnergy(ABC):
    """What a method with an energy of single images offers: ``p(x)`` is proportional to ``exp(-E(x))``.

    An image's energy depends on no other image of its batch while the method is in eval mode.
    """

    @abstractmethod
    def encode_references(self, images: Tensor) -> Tensor:
        """Return the references (M, P) that energies are computed against, from images (M, C, H, W).

        A method whose energy needs no references returns (M, 0).
        """

    @abstractmethod
    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        """Return the energies (N,) in nats, up to a constant, of images (N, C, H, W); differentiable in the images.

        Args:
            images: (N, C, H, W).
            references: (M, P) as returned by ``encode_references``.
        """


class PairEnergy(ImageEnergy):
    """What a method with an energy of two views offers too: ``p(v, v')`` is proportional to ``exp(-E(v, v'))``.

    The vectors of first views v are those that ``encode_references`` returns.
    """

    @abstractmethod
    def encode_second(self, images: Tensor) -> Tensor:
        """Return the vectors (M, P) of second views v' from images (M, C, H, W)."""

    @abstractmethod
    def pair_energy(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the energies (N, M) in nats, up to a constant, of every first view (N, P) with every second (M, P)."""


class SamplingMethod(Method):
    """A method whose negatives are samples; the step size of its sampler may be changed during training.

    Attributes:
        step_scale: () factor of the step size in the settings; saved with the weights, the same on every rank.
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
            return self.new_sampler().step(state, context, noise)  # built during tracing, so no recompilation

        self._compiled_step = compiled(step, **options)

    def scale_step(self, factor: float) -> None:
        """Multiply the step of the sampler by ``factor``."""
        self.step_scale.mul_(factor)
