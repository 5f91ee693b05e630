"""Out-of-distribution images made from in-distribution ones: rotated or inverted."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Tensor

from ebclab.data.image_set import ImageSet

Alteration = Literal["inverted", "rotated"]
"""inverted: 255 minus the pixel; rotated: by 90 degrees, counterclockwise."""


def altered_half(images: ImageSet, alteration: Alteration, is_altered: Tensor) -> tuple[ImageSet, ImageSet]:
    """Return the unaltered images and the altered ones; no image is in both."""
    half = images.rows(is_altered)
    pixels = 255 - half.images if alteration == "inverted" else half.images.rot90(1, dims=(2, 3)).contiguous()
    return images.rows(~is_altered), replace(half, name=alteration, images=pixels)
