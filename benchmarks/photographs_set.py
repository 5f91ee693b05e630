"""Photographs of mixed sizes, made offline: mosaics of CIFAR-10 enlarged, and crops of scikit-learn's two pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from ebclab.data.sources.load import load_split

CLASSES = 10
_TILES = 8  # of a mosaic, a side


def make_photographs(folder: Path, count: int, data_root: str | None) -> None:
    """Write ``count`` JPEG files into ten sub-folders; equal for equal counts.

    Sides are 320 to 800 pixels, qualities 75 to 95. Two of three are mosaics of 8 x 8 images of CIFAR-10, enlarged by
    bicubic interpolation; the third is a crop of a photograph.
    """
    tiles = load_split("cifar10", data_root, "train").images
    samples = [Image.fromarray(array) for array in load_sample_images().images]
    for number in range(count):
        generator = np.random.default_rng([7, number])
        width, height = (int(side) for side in generator.integers(320, 801, 2))
        if number % 3:
            rows = generator.choice(len(tiles), _TILES * _TILES, replace=False)
            grid = tiles[rows].view(_TILES, _TILES, 3, 32, 32).permute(0, 3, 1, 4, 2).reshape(32 * _TILES, -1, 3)
            picture = Image.fromarray(grid.numpy())
        else:
            picture = _crop(samples[number // 3 % len(samples)], generator)
        path = folder / f"class-{number % CLASSES}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        quality = int(generator.integers(75, 96))
        picture.resize((width, height), Image.Resampling.BICUBIC).save(path, quality=quality)


def _crop(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Return a part of at least half of the sides."""
    sides = [int(generator.integers(side // 2, side + 1)) for side in picture.size]
    left, top = (int(generator.integers(0, whole - side + 1)) for whole, side in zip(picture.size, sides, strict=True))
    return picture.crop((left, top, left + sides[0], top + sides[1]))
