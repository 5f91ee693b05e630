"""Construction of a network from the ``encoder`` section of the settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ebclab.config.encoder import OWN_ENCODERS, EncoderConfig
from ebclab.encoders.timm_encoder import build_timm, timm_has_batch_norm
from ebclab.errors import ConfigError
from ebclab.formatting import size as readable
from ebclab.hardware import free_bytes
from energy_contrast.networks import build_encoder

_NO_ROOM = re.compile("can't allocate memory|out of memory|overflow")
_TRIED = re.compile(r"tried to allocate (\d+) bytes")
_MAKERS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye, Tensor.clone}
"""Functions of torch that make the weights and the buffers of networks, and copies of them."""


class _Counted(TorchFunctionMode):
    """Adds up the sizes of tensors that are made, and raises a MemoryError once they exceed the free memory.

    It does so before a tensor is filled: the operating system gives memory only then, and may end the process.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes, self.free = 0, free_bytes(torch.device("cpu"))

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        if function in _MAKERS:
            self.num_bytes += made.numel() * made.element_size()
            if self.num_bytes > self.free:
                raise MemoryError(f"you tried to allocate {self.num_bytes} bytes")
        return made


@contextmanager
def room_problems() -> Iterator[None]:
    """Turn running out of memory for a network into a ConfigError; on a CPU, torch raises a plain RuntimeError."""
    try:
        with _Counted():
            yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _NO_ROOM.search(str(error)):
            raise
        asked = _TRIED.search(str(error))
        got = f"a part of {readable(int(asked[1]))}" if asked else "too large a part"
        raise ConfigError(
            f"encoder, method: the network does not fit in memory, got {got}; make sizes and layers smaller"
        ) from error


@room_problems()
def new_encoder(config: EncoderConfig, in_channels: int, image_size: int = 0) -> nn.Module:
    """Return the untrained encoder that ``config`` describes, initialised from torch's global generator.

    Weights of some timm networks depend on ``image_size``, pixels; 0 if not known yet.
    """
    try:
        if config.timm_name:
            return build_timm(config.timm_name, in_channels, image_size, batch_norm=config.batch_norm)
        if config.width or config.name not in OWN_ENCODERS:
            with room_problems(), torch.device("meta"):  # its size is not known: a trial without memory comes first
                _own_encoder(config, in_channels)
        encoder = _own_encoder(config, in_channels)
        if image_size and config.pooling == "quarters":
            _require_quarters(encoder, in_channels, image_size)
        return encoder
    except ValueError as error:
        raise ConfigError(f"encoder: {error}") from error


def _own_encoder(config: EncoderConfig, in_channels: int) -> nn.Module:
    return build_encoder(
        config.name,
        in_channels=in_channels,
        stem=config.stem,
        width=config.width,
        batch_norm=config.batch_norm,
        activation=config.activation,
        initialisation=config.initialisation,
        pooling=config.pooling,
    )


def _require_quarters(encoder: nn.Module, in_channels: int, image_size: int) -> None:
    """Raise ValueError if the last stage reduces an image to a single pixel."""
    with torch.no_grad():
        encoder.eval()(torch.zeros(1, in_channels, image_size, image_size))
    encoder.train()


@contextmanager
def seeded_encoder(config: EncoderConfig, seed: int, in_channels: int, image_size: int = 0) -> Iterator[nn.Module]:
    """Yield the untrained encoder of a run with ``seed``, whose weights are the first random numbers of the run.

    Within the block, torch's global generator continues the run's random sequence. On exit, its previous state is
    restored.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield new_encoder(config, in_channels, image_size)


def has_batch_norm(config: EncoderConfig) -> bool:
    """Return whether the network that ``config`` describes has batch norm; a timm network is built to check."""
    if config.batch_norm == "none" or not config.timm_name:
        return config.batch_norm == "global"
    try:
        return timm_has_batch_norm(config.timm_name)
    except ValueError as error:
        raise ConfigError(f"encoder: {error}") from error
