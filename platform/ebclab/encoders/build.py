"""Construction of a network from the ``encoder`` section of the settings, and the check and digest of its weights."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ebclab.config.encoder import EncoderConfig
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

    Args:
        on_trial: Adds up tensors that have no memory, and no others; by default others alone.
    """

    def __init__(self, *, on_trial: bool = False) -> None:
        super().__init__()
        self._on_trial = on_trial
        self.num_bytes, self.free = 0, free_bytes(torch.device("cpu"))

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        if function in _MAKERS and made.is_meta == self._on_trial:
            self.num_bytes += made.numel() * made.element_size()
            _require(self.num_bytes, self.free)
        return made


def _require(num_bytes: int, free: int) -> None:
    if num_bytes > free:
        raise MemoryError(f"you tried to allocate {num_bytes} bytes")


@contextmanager
def _in_words() -> Iterator[None]:
    """Turn running out of memory for a network into a ConfigError; on a CPU, torch raises a plain RuntimeError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _NO_ROOM.search(str(error)):
            raise
        asked = _TRIED.search(str(error))
        got = f"a part of {readable(int(asked[1]))}" if asked else "too large a part"
        raise ConfigError(
            f"encoder, method: the network does not fit in memory, got {got}; make sizes and layers smaller"
        ) from error


@contextmanager
def room_problems() -> Iterator[None]:
    """Raise a ConfigError when networks that are made do not fit in memory."""
    with _in_words(), _Counted():
        yield


@_in_words()
def new_encoder(config: EncoderConfig, in_channels: int, image_size: int = 0) -> nn.Module:
    """Return the untrained encoder that ``config`` describes, initialised from torch's global generator.

    Weights of some timm networks depend on ``image_size``, pixels; 0 if not known yet.
    """
    try:
        if config.timm_name:
            with _Counted():
                return build_timm(config.timm_name, in_channels, image_size, batch_norm=config.batch_norm)
        _require(_bytes_of(config, in_channels), free_bytes(torch.device("cpu")))
        encoder = _own_encoder(config, in_channels)
        if image_size and config.pooling == "quarters":
            with torch.no_grad():  # a last stage of a single pixel is a ValueError
                encoder.eval()(torch.zeros(1, in_channels, image_size, image_size))
            encoder.train()
        return encoder
    except ValueError as error:
        raise ConfigError(f"encoder: {error}") from error


@lru_cache(64)
def _bytes_of(config: EncoderConfig, in_channels: int) -> int:
    """Return the size of an encoder, which is made without memory; raise a MemoryError as soon as it is too large."""
    counted = _Counted(on_trial=True)
    with counted, torch.device("meta"):
        _own_encoder(config, in_channels)
    return counted.num_bytes


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


WEIGHTS, DESCRIPTION = "model.safetensors", "encoder.json"
"""Files of an exported encoder that are required to use it."""

ENERGIES, HEADS = "energies.json", "energies.safetensors"
"""Files of an export that has energies of images: the method, and what it has beside its encoder."""


def differences(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], *, types: bool = False) -> list[str]:
    """Return a line for each tensor whose name or shape is not the expected one; empty if ``weights`` match.

    With ``types``, dtypes must match, too; otherwise tensors are converted on loading.
    """
    names = dict.fromkeys([*expected, *weights])
    return [line for name in names if (line := _difference(name, expected, weights, types))]


def first_of(differing: Sequence[str], most: int = 3) -> str:
    """Return the first of several differences, and how many more there are."""
    more = f" and {len(differing) - most} more" if len(differing) > most else ""
    return "; ".join(differing[:most]) + more


def _difference(name: str, expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], types: bool) -> str:
    if name not in weights:
        return f"no tensor {name}"
    if name not in expected:
        return f"an unknown tensor {name}"
    if weights[name].shape != expected[name].shape:
        return f"{name} of shape {tuple(weights[name].shape)} instead of {tuple(expected[name].shape)}"
    if types and weights[name].dtype != expected[name].dtype:
        return f"{name} of type {weights[name].dtype} instead of {expected[name].dtype}"
    return ""


def digest_of(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of weights in any order: of names, dtypes, shapes and bytes, whatever the file format."""
    found = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
