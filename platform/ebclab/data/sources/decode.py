"""Decodes images (PNG, JPEG and so on) to bytes of one shape; damaged images are named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from PIL import UnidentifiedImageError
from torch import Tensor

from ebclab.config.sections import DataConfig
from ebclab.data.photograph import DAMAGE, Decoding, Resampling, TooManyPixelsError, kind_of_damage, read_photograph
from ebclab.errors import DataError, MixedSizesError


@dataclass(frozen=True)
class Reading:
    """How stored images are read."""

    resize: int = 0  # side of the square that images are scaled and cropped to, pixels; 0 leaves them unchanged
    colour: Literal["rgb", "grey"] = "rgb"  # images of tensors keep their channels
    skip_corrupt: bool = False  # leave out images that cannot be decoded
    image_column: str = "image"
    label_column: str = "label"  # there need not be one
    labels: str = ""  # file with the labels of a folder's images
    decoding: Decoding = "full"  # of JPEG files, if ``resize`` is set
    resampling: Resampling = "bilinear"

    @classmethod
    def of(cls, data: DataConfig) -> Reading:
        """Return how images are read according to the ``data`` section."""
        columns = (data.image_column, data.label_column)
        return cls(data.resize, data.colour, data.skip_corrupt, *columns, data.labels, data.decoding)


class Example(NamedTuple):
    """An image of a dataset with its shape, which all others must have."""

    name: str
    shape: tuple[int, int, int]  # C, H, W


@dataclass(frozen=True)
class LeftOut:
    """An image that was left out."""

    name: str  # its file, and its place within the file
    kind: str  # from ``kind_of_damage``
    reason: str

    @classmethod
    def because(cls, name: str, error: BaseException) -> LeftOut:
        """Return the record of the image ``name``, which raised ``error``."""
        known = not isinstance(error, UnidentifiedImageError)
        reason = " ".join(str(error).split()) or type(error).__name__
        return cls(name, kind_of_damage(error), reason if known else "a file of no known format")

    def __str__(self) -> str:
        return f"{self.name}: not a readable image, got {self.reason}"


class Decoded(NamedTuple):
    """Result of reading n requested images, in the order of the request."""

    images: Tensor  # (k, C, H, W) uint8, those that could be decoded
    good: Tensor  # (n,) bool, which of the requested images they are
    left_out: list[LeftOut]  # the others


def decode_images(encoded: Iterable[tuple[str, bytes]], reading: Reading, example: Example) -> Decoded:
    """Decode images, each a name and its content, which must all have the shape of ``example``."""
    images, good, left_out = [], [], []
    for name, content in encoded:
        try:
            image = decode_image(content, reading)
        except DAMAGE as error:
            if not reading.skip_corrupt:
                raise _damaged(name, error) from error
            left_out.append(LeftOut.because(name, error))
            good.append(False)
            continue
        if tuple(image.shape) != example.shape:
            raise MixedSizesError(str(mixed_sizes(_example(name, image), example)))
        images.append(image)
        good.append(True)
    stacked = torch.stack(images) if images else torch.empty(0, *example.shape, dtype=torch.uint8)
    return Decoded(stacked, torch.tensor(good, dtype=torch.bool), left_out)


def first_example(encoded: Iterable[tuple[str, bytes]], reading: Reading, where: str) -> Example:
    """Return the first image that can be decoded."""
    for name, content in encoded:
        try:
            return _example(name, decode_image(content, reading))
        except DAMAGE as error:
            if not reading.skip_corrupt:
                raise _damaged(name, error) from error
    raise DataError(f"{where}: none of its images can be decoded; give another folder")


def decode_image(content: bytes, reading: Reading) -> Tensor:
    """Return one encoded image as (C, H, W) uint8, upright, scaled and cropped as ``reading`` says."""
    channels = 3 if reading.colour == "rgb" else 1
    return read_photograph(content, channels, reading.resize, reading.decoding, reading.resampling)


def mixed_sizes(other: Example, first: Example) -> DataError:
    """Return the error about two images of different shapes."""
    shown = [f"{image.name} of {image.shape[2]}x{image.shape[1]}" for image in (first, other)]
    return DataError(
        f"data.resize: the images must be of one size, got {shown[0]} and {shown[1]} pixels; "
        "set data.resize to the side that all are scaled and cropped to"
    )


def _example(name: str, image: Tensor) -> Example:
    channels, height, width = image.shape
    return Example(name, (channels, height, width))


def _damaged(name: str, error: BaseException) -> DataError:
    remedy = "make it smaller" if isinstance(error, TooManyPixelsError) else "replace it"
    return DataError(f"{LeftOut.because(name, error)}; {remedy}, or skip such images with data.skip_corrupt=true")
