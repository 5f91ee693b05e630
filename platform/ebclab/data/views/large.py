"""Views of large images on a CPU, one by one: each stays in a core's cache, and is spared what it does not need.

They have the parameters of views that are made in batches, and their pixels up to rounding.

Shapes: V views, B images, C channels, H x W source pixels, P pixels of a view.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.constants import constant
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.banded import blur_alone, crop
from ebclab.data.views.blur import require_fitting_kernel
from ebclab.data.views.colour import gray_of, solarise
from ebclab.data.views.noise import standard_normal
from ebclab.data.views.parameters import BRIGHTNESS, CONTRAST, HUE, SATURATION, ViewParameters

_LARGE = 96 * 96
"""Pixels of an image, or of a view of it, from which on this module makes it: the bits of views depend on it."""


class _View(NamedTuple):
    """The parameters of one view, as in `ViewParameters`."""

    top: int
    left: int
    height: int
    width: int
    flip: bool
    order: list[int]
    brightness: float
    contrast: float
    saturation: float
    hue: float
    grayscale: bool
    blur_sigma: float
    solarise: bool
    noise_word: int


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
    """Write the views that ``parameters`` describe.

    Args:
        images: (B, C, H, W) uint8.
        parameters: Parameters of V views of these images.
        config: Final view settings; says which operations take part, the blur's kernel size and the noise.
        preprocessing: Size of the views and their normalisation.
        result: (V * B, C, P) float32, of any layout.
    """
    size = preprocessing.image_size
    if any(config.blur_rates):
        require_fitting_kernel(config.blur_kernel_size, size, size)
    mean, std = preprocessing.columns(images.device)
    drawn = map(_View._make, zip(*(field.flatten(0, 1).tolist() for field in parameters), strict=True))
    for place, view in enumerate(drawn):
        planes = _make_planes(images[place % len(images)], view, config, size)
        torch.mul(planes.sub_(mean), 1 / std, out=result[place])


def _make_planes(image: Tensor, view: _View, config: ViewsConfig, size: int) -> Tensor:
    """Return (C, P) planes of one view, not yet normalised."""
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


def _jitter(planes: Tensor, view: _View, *, in_colour: bool) -> None:
    """Apply colour jitter in the image's own order, in place."""
    for operation in view.order:
        if operation == BRIGHTNESS:
            _blend(planes, planes.new_zeros(()), view.brightness)
        elif operation == CONTRAST and view.contrast != 1:
            _blend(planes, gray_of(planes.mean(1)), view.contrast)
        elif operation == SATURATION and in_colour and view.saturation != 1:
            _blend(planes, gray_of(planes), view.saturation)
        elif operation == HUE and in_colour and view.hue != 0:
            _shift_hue(planes, view.hue)


def _blend(planes: Tensor, other: Tensor, keep: float) -> None:
    """Set planes to clamp(keep * planes + (1 - keep) * other, 0, 1), in place."""
    if keep != 1:
        torch.add(other.mul_(1 - keep), planes, alpha=keep, out=planes)
    if keep > 1:
        planes.clamp_(0, 1)


def _shift_hue(planes: Tensor, turns: float) -> None:
    """Turn the hue of RGB planes (3, P) in place, by the formula of `colour.shift_hue` in fewer passes.

    Hues are counted in turns from red. Where e is how far a channel's hue is from the opposite of the shifted hue, the
    channel becomes m - c + 6 c clamp(e, 1/6, 1/3), with the pixel's least channel m and chroma c.
    """
    lowest, chroma = planes.amin(0), planes.amax(0)
    base = torch.sub(lowest, chroma.sub_(lowest), out=lowest)
    six_chroma = torch.add(constant((1e-12,), planes.dtype, planes.device), chroma, alpha=6)  # any hue is right at 0
    side, hue = constant(((0.0, 1.0, -1.0), (-1.0, 1.0, 1.0)), planes.dtype, planes.device) @ planes  # G - B, G + B - R
    hue.sub_(base).div_(six_chroma).copysign_(side)  # [-1/2, 1/2]
    offset = torch.tensor([2 + turns, 2 + turns - 1 / 3, 2 + turns + 1 / 3])[:, None]  # 2: frac is for positive numbers
    torch.add(hue, offset, out=planes).frac_().sub_(0.5).abs_().clamp_(1 / 6, 1 / 3)
    torch.addcmul(base, planes, six_chroma, out=planes)
