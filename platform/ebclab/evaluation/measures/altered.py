"""Images that an encoder should notice as from outside, made of those from inside: turned, or white for black."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Tensor

from ebclab.data.image_set import ImageSet

Alteration = Literal["inverted", "rotated"]
"""inverted: white for black; rotated: by a quarter turn, counterclockwise."""


def altered_half(images: ImageSet, alteration: Alteration, is_altered: Tensor) -> tuple[ImageSet, ImageSet]:
    """Return the images that stay as they are, and the altered ones: none is on both sides.

    Args:
        images: (n, C, H, W) uint8.
        alteration: What is done.
        is_altered: (n,) bool, to which; half of them, by a hash of their keys.
    """
    half = images.rows(is_altered)
    pixels = 255 - half.images if alteration == "inverted" else half.images.rot90(1, dims=(2, 3)).contiguous()
    return images.rows(~is_altered), replace(half, name=alteration, images=pixels)
