"""Preprocessing: turns stored uint8 images into the input of a trained encoder, without augmentation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.config.sections import ViewsConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import DAMAGE, Decoding, Resampling, central_squares, read_photograph
from ebclab.errors import DataError
from energy_contrast.method import PixelRange


@lru_cache(maxsize=256)
def constant(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers, or rows of numbers, that a device needs for every batch; cached: do not write to the tensor.

    They are copied there once, because the host waits for every such copy.
    """
    return torch.tensor(values, dtype=dtype, device=device)


@dataclass(frozen=True)
class Preprocessing:
    """Resize (antialiased bilinear) to a square and normalise by channel, after the crop with which images were read.

    If ``read_size`` is set, images were cropped and scaled to squares of that side when they were read
    (``data.resize``), and images of another size are treated in the same way.
    """

    image_size: int  # side of the result, pixels
    mean: tuple[float, ...]  # channel means subtracted, in the image range [0, 1]
    std: tuple[float, ...]  # channel standard deviations divided by, in the image range [0, 1]
    read_size: int = 0  # pixels; 0: images were not cropped, and are only resized
    decoding: Decoding = "full"  # of JPEG files when they were read (``data.decoding``)
    resampling: Resampling = "bilinear"  # to ``read_size``

    def scaled(self, side: int, resampling: Resampling) -> Preprocessing:
        """Return the one that scales the largest central square of images to ``side`` pixels, 0: to ``image_size``."""
        side = side or self.image_size
        return replace(self, image_size=side, read_size=side, resampling=resampling)

    def in_words(self) -> str:
        """Return a description of what happens to the pixels of an image file, for users."""
        channels = {1: "one grey channel", 3: "three channels"}.get(len(self.mean), f"{len(self.mean)} channels")
        read = f"upright (EXIF) in {channels}"
        if self.read_size:
            side = self.read_size
            if self.decoding == "reduced":
                read += f", JPEG decoded at the least 1/2, 1/4 or 1/8 of at least {side} x {side}"
            read += f", then the largest central square, scaled to {side} x {side} bytes (Pillow, {self.resampling})"
        resized = f"divided by 255, resized to {self.image_size} x {self.image_size} (bilinear, antialiased)"
        if not self.read_size:
            resized += " without a crop, so that an image of another shape is squeezed"
        return f"{read}; {resized}; minus the mean, divided by the standard deviation, by channel"

    def columns(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation, (C, 1) each, on a device. They are cached: do not write to them."""
        mean, std = (constant(tuple(values), torch.float32, device)[:, None] for values in (self.mean, self.std))
        return mean, std

    def read(self, path: str | Path) -> Tensor:
        """Return an image file as the images of the run were read, (C, H, W) uint8."""
        try:
            return read_photograph(
                Path(path).read_bytes(), len(self.mean), self.read_size, self.decoding, self.resampling
            )
        except DAMAGE as error:
            raise DataError(f"{path}: not a readable image, got {error}; give another file") from error

    @property
    def pixel_range(self) -> PixelRange:
        pairs = list(zip(self.mean, self.std, strict=True))
        return PixelRange(tuple((0 - m) / s for m, s in pairs), tuple((1 - m) / s for m, s in pairs))

    def as_read(self, images: Tensor) -> Tensor:
        """Return (B, C, H, W) images cropped and scaled like those of the run, unless they have that size already."""
        if not self.read_size or images.shape[-2:] == (self.read_size, self.read_size):
            return images
        if images.dtype != torch.uint8:
            raise DataError(
                f"images: those of other sizes than {self.read_size} x {self.read_size} are cropped and scaled as "
                f"bytes, got {images.dtype} of {images.shape[-1]} x {images.shape[-2]}; give uint8"
            )
        return central_squares(images, self.read_size, self.resampling)

    def __call__(self, images: Tensor) -> Tensor:
        """Return (B, C, size, size) float32 of (B, C, H, W) images, uint8 or float in [0, 1]."""
        images = self.as_read(images)
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        if self.image_size and pixels.shape[-2:] != (self.image_size, self.image_size):
            size = (self.image_size, self.image_size)
            pixels = functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        mean = torch.tensor(self.mean, device=pixels.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).view(-1, 1, 1)
        return (pixels - mean) / std


def preprocessing_for(views: ViewsConfig, data: ImageSet) -> Preprocessing:
    """Return the preprocessing that matches what training views of ``data`` look like."""
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
