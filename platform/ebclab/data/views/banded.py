"""Crop and blur of one large image on a CPU: lines of pixels are filtered block by block.

`geometry.py` and `blur.py` multiply by whole matrices, which costs little where images are small. At 224 pixels nine of
ten of their numbers are zeros; here a block of results is a product with only those pixels that reach it.

Shapes: C channels, H x W source pixels, h x w pixels; a line has ``blocks`` of `BLOCK` results.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.data.views.products import multiply

BLOCK = 32  # results
_SIGMAS = 5  # beyond which a Gaussian is left out: 6e-7 of its mass


class Band(NamedTuple):
    """How lines of pixels are filtered, in blocks.

    Attributes:
        weights: (blocks, BLOCK, n) weights of n inputs; those of block k begin at input k * step.
        step: Inputs from the first of a block to the first of the next.
        before: Inputs that a line has before its first pixel.
    """

    weights: Tensor
    step: int
    before: int

    @property
    def inputs(self) -> int:
        """Inputs that a line has."""
        blocks, _, width = self.weights.shape
        return (blocks - 1) * self.step + width


def crop(image: Tensor, box: tuple[int, int, int, int], flip: bool, size: int) -> Tensor:
    """Return a box of an image, scaled to (C, size, size) by antialiased bilinear weights, in [0, 1].

    Args:
        image: (C, H, W) uint8.
        box: Its top, left, height and width, pixels.
        flip: Whether the result is mirrored left and right.
        size: Side of the result, pixels.
    """
    top, left, height, width = box
    rows, columns = resize_band(height, size, total=1 / 255), resize_band(width, size, total=1.0)
    pixels = image[:, top : top + height, left : left + width]
    padded = torch.zeros(len(image), rows.inputs, columns.inputs)
    inside = padded[:, rows.before : rows.before + height, columns.before : columns.before + width]
    inside.copy_(pixels.flip(2) if flip else pixels)
    narrow = _filter_columns(padded, columns)[:, :, :size].contiguous()
    return _filter_rows(narrow, rows)[:, :size].contiguous()


def blur_alone(planes: Tensor, sigma: float, kernel_size: int) -> Tensor:
    """Return (C, h, w) planes blurred as `blur` does, up to rounding.

    Args:
        planes: (C, h, w) pixels.
        sigma: Standard deviation, pixels, above 0.
        kernel_size: Width of the kernel, pixels, odd, that no side of the image is too short for.
    """
    height, width = planes.shape[1:]
    reach = min(kernel_size // 2, math.ceil(_SIGMAS * sigma))
    weights = torch.tensor([*_gaussian(sigma, kernel_size // 2)[: reach + 1], 0.0])[_distances(reach)]
    rows, columns = (
        Band(weights.expand(math.ceil(side / BLOCK), -1, -1), BLOCK, before=reach) for side in (height, width)
    )
    right, below = columns.inputs - width - 2 * reach, rows.inputs - height - 2 * reach
    # each result takes the place of the one before it, so that a core's cache holds all
    result = _filter_columns(_mirrored(planes, (reach, reach, 0, 0), (0, right)), columns)
    result = _mirrored(result[:, :, :width], (0, 0, reach, reach), (0, 0, 0, below))
    return _filter_rows(result, rows)[:, :height].contiguous()


def _gaussian(sigma: float, radius: int) -> list[float]:
    """Return kernel values at distances 0 to ``radius``; both sides together sum to 1."""
    taps = [math.exp(-0.5 * (distance / sigma) ** 2) for distance in range(radius + 1)]
    total = 2 * sum(taps) - 1
    return [tap / total for tap in taps]


@lru_cache(maxsize=512)
def resize_band(length: int, size: int, *, total: float) -> Band:
    """Return the weights of `ResizeLine` for ``size`` pixels of ``length``; nobody may write to them."""
    scale = length / size
    half_width = max(scale, 1.0)
    blocks, step = math.ceil(size / BLOCK), int(BLOCK * scale)
    before = math.ceil(half_width + 0.5 - scale / 2)
    drift = (blocks - 1) * (BLOCK * scale - step)  # how far the last block begins before the pixels that it reads
    inputs = before + math.ceil(drift + (BLOCK - 0.5) * scale + half_width + 0.5)
    centres = (torch.arange(blocks * BLOCK, dtype=torch.float64).clamp_max(size - 1) + 0.5) * scale
    pixels = torch.arange(inputs) - before + step * torch.arange(blocks)[:, None]  # (blocks, inputs)
    distance = pixels[:, None] + 0.5 - centres.view(blocks, BLOCK, 1)
    triangle = (1 - distance.abs() / half_width).clamp_min(0) * ((pixels >= 0) & (pixels < length))[:, None]
    return Band((triangle * (total / triangle.sum(2, keepdim=True))).float(), step, before)


@lru_cache(maxsize=64)
def _distances(reach: int) -> Tensor:
    """Return how far each input of a block is from each result, (BLOCK, BLOCK + 2 reach), at most ``reach`` + 1."""
    inputs, results = torch.arange(BLOCK + 2 * reach) - reach, torch.arange(BLOCK)[:, None]
    return (inputs - results).abs().clamp_max(reach + 1)


def _mirrored(planes: Tensor, mirrored: tuple[int, ...], zeros: tuple[int, ...]) -> Tensor:
    """Return planes continued by their mirror images, in which the border is not doubled, and then by zeros."""
    padded = functional.pad(planes[None], mirrored, mode="reflect")[0]
    return functional.pad(padded, zeros) if any(zeros) else padded


def _filter_columns(planes: Tensor, band: Band) -> Tensor:
    """Return (C, h, blocks * BLOCK) of contiguous planes (C, h, inputs)."""
    channels, height, width = planes.shape
    blocks, _, inputs = band.weights.shape
    pieces = planes.as_strided((blocks, channels * height, inputs), (band.step, width, 1))
    result = planes.new_empty(channels * height, blocks, BLOCK)
    multiply(pieces, band.weights.transpose(1, 2), out=result.transpose(0, 1))
    return result.view(channels, height, blocks * BLOCK)


def _filter_rows(planes: Tensor, band: Band) -> Tensor:
    """Return (C, blocks * BLOCK, w) of contiguous planes (C, inputs, w)."""
    channels, height, width = planes.shape
    blocks, _, inputs = band.weights.shape
    result = planes.new_empty(channels, blocks, BLOCK, width)
    for channel in range(channels):
        start = channel * height * width
        pieces = planes.as_strided((blocks, inputs, width), (band.step * width, width, 1), start)
        multiply(band.weights, pieces, out=result[channel])
    return result.flatten(1, 2)
