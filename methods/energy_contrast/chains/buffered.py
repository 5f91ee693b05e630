"""Methods whose chains of images start from a replay buffer and return to it after each step.

Shapes: C channels, H x W pixels.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from energy_contrast.chains.chains import Chains, store_chains
from energy_contrast.chains.energy import ChainEnergy
from energy_contrast.chains.restarts import Restarts
from energy_contrast.chains.trace import TracedMethod
from energy_contrast.memory.replay_buffer import ReplayBuffer, available_bytes
from energy_contrast.method import Draw, Progress, Requirements


class ChainConfig(Protocol):
    """Settings of the replay buffer and of the chains, which the config of every such method has."""

    @property
    def buffer_size(self) -> int: ...

    @property
    def buffer_dtype(self) -> Literal["float32", "half", "uint8"]: ...

    @property
    def buffer_device(self) -> Literal["same", "cpu"]: ...

    @property
    def chain_precision(self) -> Literal["float32", "bfloat16"]: ...

    @property
    def chain_gradient(self) -> Literal["full", "first-layer"]: ...

    @property
    def num_steps(self) -> int: ...

    @property
    def num_inner_steps(self) -> int: ...


class BufferedMethod(TracedMethod):
    """A method with a replay buffer: on which device it lives, how much memory it needs, what is stored after a step.

    Args:
        config: Settings, those of ``ChainConfig`` among them.
        encoder: Images to embeddings.
        num_classes: K, if the method reads labels.

    Attributes:
        buffer: Images that chains start from; in ``memories`` as "buffer".
        _moved: Chains of all ranks after this step's sampling, set by ``forward`` and stored by ``after_step``.
        _restarts: Which chains restart, and from what; set by the subclass's constructor.
        _fill_seed: Decides what the buffer begins with; set by the subclass's constructor.

    Raises:
        ValueError: If ``chain_gradient`` is first-layer and the encoder is not a ``ResNet``.

    Source: ours.
    """

    _restarts: Restarts
    _fill_seed: int

    def __init__(self, config: ChainConfig, encoder: nn.Module, num_classes: int = 0) -> None:
        super().__init__(config, encoder, num_classes)
        self.buffer = ReplayBuffer(config.buffer_size, dtype=config.buffer_dtype)
        self.memories = {"buffer": self.buffer}
        self._moved: Chains | None = None
        self._energy = ChainEnergy(
            self.encoder,
            self.energy_of_embedding,
            num_inner_steps=config.num_inner_steps if config.chain_gradient == "first-layer" else 0,
            bfloat16=config.chain_precision == "bfloat16",
        )

    @abstractmethod
    def energy_of_embedding(self, embedding: Tensor, references: Any) -> Tensor:
        """Return the energies (N,) of embeddings (N, D) against ``references``, in copies of the method too."""

    @classmethod
    def requirements(cls, config: Any, batch_size: int) -> Requirements:
        """Return what all methods need, with ``images_alone``."""
        if batch_size > config.buffer_size:
            raise ValueError(
                f"buffer_size: must hold the global batch of {batch_size} images, got {config.buffer_size}; "
                f"use at least {batch_size}"
            )
        return replace(super().requirements(config, batch_size), images_alone=True)

    def memory_bytes(self, shape: tuple[int, int, int]) -> int:
        """Return the bytes of the replay buffer, if they fit on its device."""
        device = self._buffer_device()
        self.buffer.require_room(shape, available_bytes(device), str(device))
        return self.buffer.num_bytes(shape)

    def kept_bytes(self, shape: tuple[int, int, int], num_images: int) -> int:
        """Return what all methods keep, and the replay buffer."""
        return super().kept_bytes(shape, num_images) + self.buffer.num_bytes(shape)

    def require_images_of(self, shape: tuple[int, int, int]) -> None:
        """Check that the buffer holds images of ``shape``."""
        self.buffer.require_images_of(shape)

    def start(self, draw: Draw) -> None:
        """Fill the buffer with what chains restart from."""
        generator = torch.Generator().manual_seed(self._fill_seed)
        self._restarts.fill(self.buffer, draw, generator, self._buffer_device(), self.pixel_range)

    def compile_parts(self, **options: Any) -> None:
        """Compile the encoder, the sampler's step and the energy of the chains."""
        super().compile_parts(**options)
        self._energy.compile(**options)

    def not_recorded(self) -> str:
        """Refuse a buffer that is not on the method's device."""
        if self._buffer_device() != next(self.parameters()).device:
            return "buffer_device: images go to the device and back in every step; same can be recorded"
        return super().not_recorded()

    def after_step(self, progress: Progress) -> None:
        """Write the step's chains to the buffer."""
        if self._moved is not None:
            store_chains(self.buffer, self._moved)
            self._moved = None

    def _buffer_device(self) -> torch.device:
        """Return the device of the buffer."""
        return next(self.parameters()).device if self.config.buffer_device == "same" else torch.device("cpu")
