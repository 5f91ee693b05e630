"""From the ``encoder`` section to a network."""

from __future__ import annotations

from torch import nn

from ebclab.config.encoder import EncoderConfig
from ebclab.encoders.timm_encoder import build_timm
from ebclab.errors import ConfigError
from energy_contrast.networks import build_encoder


def new_encoder(config: EncoderConfig, in_channels: int, image_size: int = 0) -> nn.Module:
    """Return the untrained encoder that ``config`` describes, initialised from torch's global generator.

    Args:
        config: Which network.
        in_channels: Channels of the images.
        image_size: Side of the images, pixels; 0 where it is not known yet. Some networks of timm have weights for it.

    Raises:
        ConfigError: There is no such network, or none for such images.
    """
    try:
        if config.timm_name:
            return build_timm(config.timm_name, in_channels, image_size, batch_norm=config.batch_norm)
        return build_encoder(
            config.name,
            in_channels=in_channels,
            stem=config.stem,
            width=config.width,
            batch_norm=config.batch_norm,
            activation=config.activation,
        )
    except ValueError as error:
        raise ConfigError([f"encoder: {error}"]) from error
