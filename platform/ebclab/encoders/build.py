"""Construction of a network from the ``encoder`` section of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ebclab.config.encoder import EncoderConfig
from ebclab.encoders.timm_encoder import build_timm, timm_has_batch_norm
from ebclab.errors import ConfigError
from energy_contrast.networks import build_encoder


def new_encoder(config: EncoderConfig, in_channels: int, image_size: int = 0) -> nn.Module:
    """Return the untrained encoder that ``config`` describes, initialised from torch's global generator.

    Args:
        config: Settings of the network.
        in_channels: Channels of the images.
        image_size: Side of the images in pixels; 0 if not known yet. Weights of some timm networks depend on it.

    Raises:
        ConfigError: There is no such network, or it does not accept such images.
    """
    try:
        if config.timm_name:
            return build_timm(config.timm_name, in_channels, image_size, batch_norm=config.batch_norm)
        encoder = build_encoder(
            config.name,
            in_channels=in_channels,
            stem=config.stem,
            width=config.width,
            batch_norm=config.batch_norm,
            activation=config.activation,
            initialisation=config.initialisation,
            pooling=config.pooling,
        )
        if image_size and config.pooling == "quarters":
            _require_quarters(encoder, in_channels, image_size)
        return encoder
    except ValueError as error:
        raise ConfigError([f"encoder: {error}"]) from error


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

    Args:
        config: Settings of the network.
        seed: The run's seed.
        in_channels: Channels of the images.
        image_size: Side of the images in pixels; 0 if not known yet.

    Raises:
        ConfigError: As in ``new_encoder``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield new_encoder(config, in_channels, image_size)


def has_batch_norm(config: EncoderConfig) -> bool:
    """Return whether the network that ``config`` describes has batch norm; a timm network is built to check.

    Raises:
        ConfigError: timm is not installed, or cannot build the network.
    """
    if config.batch_norm == "none" or not config.timm_name:
        return config.batch_norm == "global"
    try:
        return timm_has_batch_norm(config.timm_name)
    except ValueError as error:
        raise ConfigError([f"encoder: {error}"]) from error
