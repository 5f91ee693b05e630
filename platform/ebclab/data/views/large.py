"""Views of large images on a CPU, one by one: each stays in a core's cache, and is spared what it does not need.

They have the parameters of views that are made in batches, and their pixels up to rounding. `geometry.py`
multiplies by whole matrices, which costs little where images are small. At 224 pixels nine of ten of their numbers are
zeros; here lines of pixels are cropped and blurred block by block, each a product with only those pixels that reach it.

Shapes: V views, B images, C channels, H x W source pixels, h x w = P pixels of a view; a line has ``blocks`` of `BLOCK`
results.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import standard_normal
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.colour import gray_of, shift_hue, solarise
from ebclab.data.views.geometry import gaussian_taps, multiply, require_fitting_kernel
from ebclab.data.views.parameters import BRIGHTNESS, CONTRAST, HUE, SATURATION, ViewParameters

_LARGE = 96 * 96
"""Pixels of an image, or of a view of it, from which on this module makes it: the bits of views depend on it."""


BLOCK = 32  # results
_SIGMAS = 5  # beyond which a Gaussian is left out: 6e-7 of its mass


def are_large(height: int, width: int, size: int) -> bool:
    """Return whether a CPU makes views of ``size`` pixels a side of images of ``height`` x ``width`` one by one."""
    return max(height * width, size * size) >= _LARGE


def make_large_views(
    images: Tensor,
    parameters: ViewParameters,
    config: ViewsConfig,
    preprocessing: Preprocessing,
    result: Tensor,
) -> None:
    """Write the views of images (B, C, H, W) that ``parameters`` describe, (V * B, C, P) float32 of any layout."""
    size = preprocessing.image_size
    if any(config.blur_rates):
        require_fitting_kernel(config.blur_kernel_size, size, size)
    mean, std = preprocessing.columns(images.device)
    numbers: Any = zip(*(field.flatten(0, 1).tolist() for field in parameters), strict=True)
    for place, view in enumerate(map(ViewParameters._make, numbers)):
        planes = _make_planes(images[place % len(images)], view, config, size)
        torch.mul(planes.sub_(mean), 1 / std, out=result[place])


def _make_planes(image: Tensor, view: Any, config: ViewsConfig, size: int) -> Tensor:
    """Return (C, P) planes of one view, whose parameters are plain numbers, not yet normalised."""
    square = crop(image, (view.top, view.left, view.height, view.width), view.flip, size)
    planes = square.flatten(1)
    in_colour = len(planes) == 3
    if config.jitter_rate > 0:
        _jitter(planes, view, in_colour=in_colour)
    if view.grayscale and in_colour:
        planes.copy_(gray_of(planes))
    if view.blur_sigma > 0:
        planes = blur_alone(square, view.blur_sigma, config.blur_kernel_size).flatten(1)
    if view.solarise:
        planes = solarise(planes[:, None], torch.tensor([True])).flatten(1)
    if config.noise_std > 0:
        noise = standard_normal(torch.tensor([view.noise_word]), planes.numel())
        planes.add_(noise.view_as(planes), alpha=config.noise_std)
    return planes


def _jitter(planes: Tensor, view: Any, *, in_colour: bool) -> None:
    """Apply colour jitter in the image's own order, in place."""
    for operation in view.order:
        if operation == BRIGHTNESS:
            _blend(planes, planes.new_zeros(()), view.brightness)
        elif operation == CONTRAST and view.contrast != 1:
            _blend(planes, gray_of(planes.mean(1)), view.contrast)
        elif operation == SATURATION and in_colour and view.saturation != 1:
            _blend(planes, gray_of(planes), view.saturation)
        elif operation == HUE and in_colour and view.hue != 0:
            shift_hue(planes[:, None], torch.tensor([view.hue]))


def _blend(planes: Tensor, other: Tensor, keep: float) -> None:
    """Set planes to clamp(keep * planes + (1 - keep) * other, 0, 1), in place."""
    if keep != 1:
        torch.add(other.mul_(1 - keep), planes, alpha=keep, out=planes)
    if keep > 1:
        planes.clamp_(0, 1)


class ResizeBand(NamedTuple):
    """How lines of pixels are filtered, in blocks."""

    weights: Tensor  # (blocks, BLOCK, n) weights of n inputs; those of block k begin at input k * step
    step: int  # inputs from the first of a block to the first of the next
    before: int  # inputs that a line has before its first pixel

    @property
    def inputs(self) -> int:
        blocks, _, width = self.weights.shape
        return (blocks - 1) * self.step + width


def crop(image: Tensor, box: tuple[int, int, int, int], flip: bool, size: int) -> Tensor:
    """Return a box of an image, scaled to (C, size, size) by antialiased bilinear weights, in [0, 1].

    The box is top, left, height and width, pixels, of an image (C, H, W) uint8; ``flip`` mirrors left and right.
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
    """Return (C, h, w) planes blurred as `blur` does with a sigma above 0, up to rounding.

    No side of the image is too short for the kernel.
    """
    height, width = planes.shape[1:]
    reach = min(kernel_size // 2, math.ceil(_SIGMAS * sigma))
    taps = gaussian_taps(torch.tensor([sigma]), kernel_size // 2)[0, : reach + 1]
    weights = functional.pad(taps, (0, 1))[_distances(reach)]
    rows, columns = (
        ResizeBand(weights.expand(math.ceil(side / BLOCK), -1, -1), BLOCK, before=reach) for side in (height, width)
    )
    right, below = columns.inputs - width - 2 * reach, rows.inputs - height - 2 * reach
    # each result takes the place of the one before it, so that a core's cache holds all
    result = _filter_columns(_mirrored(planes, (reach, reach, 0, 0), (0, right)), columns)
    result = _mirrored(result[:, :, :width], (0, 0, reach, reach), (0, 0, 0, below))
    return _filter_rows(result, rows)[:, :height].contiguous()


@lru_cache(maxsize=512)
def resize_band(length: int, size: int, *, total: float) -> ResizeBand:
    """Return the weights of `ResizeLine` for ``size`` pixels of ``length``; no one may write to them."""
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
    return ResizeBand((triangle * (total / triangle.sum(2, keepdim=True))).float(), step, before)


@lru_cache(maxsize=64)
def _distances(reach: int) -> Tensor:
    """Return how far each input of a block is from each result, (BLOCK, BLOCK + 2 reach), at most ``reach`` + 1."""
    inputs, results = torch.arange(BLOCK + 2 * reach) - reach, torch.arange(BLOCK)[:, None]
    return (inputs - results).abs().clamp_max(reach + 1)


def _mirrored(planes: Tensor, mirrored: tuple[int, ...], zeros: tuple[int, ...]) -> Tensor:
    """Return planes continued by their mirror images, in which the border is not doubled, and then by zeros."""
    padded = functional.pad(planes[None], mirrored, mode="reflect")[0]
    return functional.pad(padded, zeros) if any(zeros) else padded


def _filter_columns(planes: Tensor, band: ResizeBand) -> Tensor:
    """Return (C, h, blocks * BLOCK) of contiguous planes (C, h, inputs)."""
    channels, height, width = planes.shape
    blocks, _, inputs = band.weights.shape
    pieces = planes.as_strided((blocks, channels * height, inputs), (band.step, width, 1))
    result = planes.new_empty(channels * height, blocks, BLOCK)
    multiply(pieces, band.weights.transpose(1, 2), out=result.transpose(0, 1))
    return result.view(channels, height, blocks * BLOCK)


def _filter_rows(planes: Tensor, band: ResizeBand) -> Tensor:
    """Return (C, blocks * BLOCK, w) of contiguous planes (C, inputs, w)."""
    channels, height, width = planes.shape
    blocks, _, inputs = band.weights.shape
    result = planes.new_empty(channels, blocks, BLOCK, width)
    for channel in range(channels):
        start = channel * height * width
        pieces = planes.as_strided((blocks, inputs, width), (band.step * width, width, 1), start)
        multiply(band.weights, pieces, out=result[channel])
    return result.flatten(1, 2)
