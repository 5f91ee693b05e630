"""From stored uint8 images to what a trained encoder expects, with nothing random."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.config.sections import ViewsConfig
from ebclab.data.image_set import ImageSet
from ebclab.errors import DataError
from energy_contrast.method import PixelRange


@dataclass(frozen=True)
class Preprocessing:
    """Resize (antialiased bilinear) to a square and normalise by channel.

    Attributes:
        image_size: Side of the result, pixels.
        mean: Channel means subtracted, in the image range [0, 1].
        std: Channel standard deviations divided by, in the image range [0, 1].
    """

    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def pixel_range(self) -> PixelRange:
        """What black and white are after normalisation."""
        pairs = list(zip(self.mean, self.std, strict=True))
        return PixelRange(tuple((0 - m) / s for m, s in pairs), tuple((1 - m) / s for m, s in pairs))

    def __call__(self, images: Tensor) -> Tensor:
        """Return (B, C, size, size) float32 of (B, C, H, W) images, uint8 or float in [0, 1]."""
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        if pixels.shape[-2:] != (self.image_size, self.image_size):
            size = (self.image_size, self.image_size)
            pixels = functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        mean = torch.tensor(self.mean, device=pixels.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).view(-1, 1, 1)
        return (pixels - mean) / std


def preprocessing_for(views: ViewsConfig, data: ImageSet) -> Preprocessing:
    """Return the preprocessing that matches what training views of ``data`` look like.

    Raises:
        DataError: The images are to be divided by their spread, and a channel has none.
    """
    channels = data.images.shape[1]
    size = views.image_size or data.images.shape[-1]
    if views.normalisation == "dataset":
        if not len(data.mean) == len(data.std) == channels or min(data.std) <= 0:
            raise DataError(
                f"views.normalisation: cannot divide by the spread of {data.name}, got std {data.std} for {channels} "
                "channels; use half, or none"
            )
        return Preprocessing(size, data.mean, data.std)
    level, spread = (0.5, 0.5) if views.normalisation == "half" else (0.0, 1.0)
    return Preprocessing(size, (level,) * channels, (spread,) * channels)
