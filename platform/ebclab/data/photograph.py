"""From an encoded image to bytes of one shape: upright, in the wanted channels, the largest central square scaled."""

from __future__ import annotations

import io
import struct
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # tag of EXIF, and its values for images stored on their side

DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, Image.DecompressionBombError)
"""What Pillow raises on damaged files, by its formats."""


def read_photograph(content: bytes, channels: int, side: int) -> Tensor:
    """Return one encoded image as (C, H, W) uint8.

    Args:
        content: The file's bytes.
        channels: 3 for colour, 1 for grey.
        side: Side of the square that it is cropped and scaled to, pixels; 0 leaves its size.

    Raises:
        OSError: The content is no image or is cut off; other damage raises other errors.
        ValueError: Its pixels have more than 8 bits.
    """
    with Image.open(io.BytesIO(content)) as picture:
        if picture.mode[0] in "IF":
            raise ValueError(f"pixels of mode {picture.mode}, more than 8 bits")
        upright = ImageOps.exif_transpose(picture).convert("RGB" if channels == 3 else "L")
    return _pixels(central_square(upright, side) if side else upright)


def size_in_header(file: BinaryIO) -> tuple[int, int]:
    """Return width and height of an encoded image as it stands upright, pixels; its pixels are not decoded.

    Raises:
        OSError: It is no image or is cut off; other damage raises other errors.
    """
    with Image.open(file) as picture:
        width, height = picture.size
        return (height, width) if picture.getexif().get(_ORIENTATION) in _LYING else (width, height)


def central_squares(images: Tensor, side: int) -> Tensor:
    """Return what ``read_photograph`` makes of images (B, C, H, W) uint8, C = 1 or 3: (B, C, side, side) uint8."""
    last = images[:, 0] if images.shape[1] == 1 else images.permute(0, 2, 3, 1)  # (B, H, W) or (B, H, W, 3)
    pictures = (Image.fromarray(each) for each in last.cpu().contiguous().numpy())
    return torch.stack([_pixels(central_square(each, side)) for each in pictures]).to(images.device)


def central_square(picture: Image.Image, side: int) -> Image.Image:
    """Return the largest central square of a picture, scaled to ``side`` pixels, antialiased."""
    largest = min(picture.size)
    left, top = ((length - largest) // 2 for length in picture.size)
    square = picture.crop((left, top, left + largest, top + largest))
    return square.resize((side, side), Image.Resampling.BILINEAR)


def _pixels(picture: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(picture))
    return pixels.permute(2, 0, 1) if pixels.ndim == 3 else pixels.unsqueeze(0)
