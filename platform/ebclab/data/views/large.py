"""Views of large images on a CPU, one by one: each stays in a core's cache, and is spared what it does not need.

They have the parameters of views that are made in batches, and their pixels within 2e-5: torch has the weights of a
crop in float32. `geometry.py`
multiplies by whole matrices, which costs little where images are small. At 224 pixels nine of ten of their numbers are
zeros; here torch crops and scales, and lines of pixels are blurred block by block, each a product with only those
pixels that reach it.

Shapes: V views, B images, C channels, H x W source pixels, h x w = P pixels of a view; a line has ``blocks`` of `BLOCK`
results, each a mixture of n pixels.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

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
    box = image[None, :, view.top : view.top + view.height, view.left : view.left + view.width]
    pixels = box.to(torch.float32, memory_format=torch.contiguous_format) / 255
    square = functional.interpolate(pixels, (size, size), mode="bilinear", antialias=True)[0]
    square = (square.flip(2) if view.flip else square).contiguous()
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


def blur_alone(planes: Tensor, sigma: float, kernel_size: int) -> Tensor:
    """Return (C, h, w) planes blurred as `blur` does with a sigma above 0, up to rounding.

    No side of the image is too short for the kernel.
    """
    height, width = planes.shape[1:]
    reach = min(kernel_size // 2, math.ceil(_SIGMAS * sigma))
    taps = gaussian_taps(torch.tensor([sigma]), kernel_size // 2)[0, : reach + 1]
    weights = functional.pad(taps, (0, 1))[_distances(reach)]
    # each result takes the place of the one before it, so that a core's cache holds all
    result = _filter_columns(_mirrored(planes, (reach, reach, 0, 0), (0, -width % BLOCK)), weights)
    result = _mirrored(result[:, :, :width], (0, 0, reach, reach), (0, 0, 0, -height % BLOCK))
    return _filter_rows(result, weights)[:, :height].contiguous()


@lru_cache(maxsize=64)
def _distances(reach: int) -> Tensor:
    """Return how far each input of a block is from each result, (BLOCK, BLOCK + 2 reach), at most ``reach`` + 1."""
    inputs, results = torch.arange(BLOCK + 2 * reach) - reach, torch.arange(BLOCK)[:, None]
    return (inputs - results).abs().clamp_max(reach + 1)


def _mirrored(planes: Tensor, mirrored: tuple[int, ...], zeros: tuple[int, ...]) -> Tensor:
    """Return planes continued by their mirror images, in which the border is not doubled, and then by zeros."""
    padded = functional.pad(planes[None], mirrored, mode="reflect")[0]
    return functional.pad(padded, zeros) if any(zeros) else padded


def _filter_columns(planes: Tensor, weights: Tensor) -> Tensor:
    """Return (C, h, blocks * BLOCK) of contiguous planes (C, h, pixels) by the weights (BLOCK, n) of a block."""
    channels, height, width = planes.shape
    inputs = weights.shape[1]
    blocks = (width - inputs) // BLOCK + 1
    pieces = planes.as_strided((blocks, channels * height, inputs), (BLOCK, width, 1))
    result = planes.new_empty(channels * height, blocks, BLOCK)
    multiply(pieces, weights.T.expand(blocks, -1, -1), out=result.transpose(0, 1))
    return result.view(channels, height, blocks * BLOCK)


def _filter_rows(planes: Tensor, weights: Tensor) -> Tensor:
    """Return (C, blocks * BLOCK, w) of contiguous planes (C, pixels, w) by the weights (BLOCK, n) of a block."""
    channels, height, width = planes.shape
    inputs = weights.shape[1]
    blocks = (height - inputs) // BLOCK + 1
    result = planes.new_empty(channels, blocks, BLOCK, width)
    for channel in range(channels):
        start = channel * height * width
        pieces = planes.as_strided((blocks, inputs, width), (BLOCK * width, width, 1), start)
        multiply(weights.expand(blocks, -1, -1), pieces, out=result[channel])
    return result.flatten(1, 2)
