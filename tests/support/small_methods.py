"""Methods of the catalogue at a size that tests can afford."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.method import Method, PixelRange
from energy_contrast.networks import build_encoder

NUM_CLASSES = 4

SMALL: dict[str, dict[str, Any]] = {
    "moco": {"queue_size": 40},
    "simsiam": {"projection_size": 32, "prediction_hidden_size": 8},
    "vicreg": {"projection_size": 24},
    "barlow": {"projection_size": 24},
    "lejepa": {"projection_size": 8, "num_slices": 16},
    "byol": {"projection_size": 16, "projection_hidden_size": 32, "momentum": 0.9},
    "ebclr": {"buffer_size": 40, "num_steps": 3},
    "jem": {"buffer_size": 40, "num_steps": 3, "reinit_rate": 0.4},
    "vem-langevin": {"bank_size": 40},
    "vem-svgd": {"bank_size": 40, "num_steps": 3},
    "vem-image": {"bank_size": 40, "num_steps": 3},
}
"""What keeps a method's memory and time small."""


def small_encoder(**settings: Any) -> nn.Module:
    """Return a small encoder of grey images."""
    return build_encoder("small", **{"in_channels": 1, "width": 4, **settings})


def small_method(
    name: str, settings: dict[str, Any], new_encoder: Callable[[], nn.Module] = small_encoder, seed: int = 0
) -> Method:
    """Return a method for normalised grey images of 8 x 8 pixels, not started, whose weights the seed decides."""
    torch.manual_seed(seed)
    kind = METHODS[name]
    method = kind(kind.Config(**settings), new_encoder(), *((NUM_CLASSES,) if kind.needs_labels else ()))
    method.pixel_range = PixelRange((-2.0,), (2.0,))
    return method


def draw_images(count: int, generator: torch.Generator) -> Tensor:
    """Return images in float32, as a method's start draws them."""
    return torch.randn(count, 1, 8, 8, generator=generator)
