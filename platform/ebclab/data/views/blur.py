"""Gaussian blur with one sigma an image: a banded matrix on each side, which also holds the reflection at the borders.

Shapes: n images, C channels, h x w pixels.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ebclab.data.views.geometry import resample
from ebclab.errors import ConfigError


def blur(planes: Tensor, sigma: Tensor, kernel_size: int) -> Tensor:
    """Return blurred (C, n, h, w) planes; they may lie where ``planes`` lay.

    A sigma (n,) is in pixels; 0 leaves the image alone, and its bits. The kernel's width is odd.
    """
    height, width = planes.shape[2:]
    require_fitting_kernel(kernel_size, height, width)
    if not sigma.is_cpu:  # to look would stall a device
        return _blurred(planes, sigma, kernel_size // 2)
    chosen = sigma.nonzero().flatten()
    if len(chosen):
        planes.index_copy_(1, chosen, _blurred(planes.index_select(1, chosen), sigma[chosen], kernel_size // 2))
    return planes


def require_fitting_kernel(kernel_size: int, height: int, width: int) -> None:
    """Refuse a kernel, pixels, that reaches over a whole image of ``height`` x ``width`` pixels (ConfigError)."""
    limit = 2 * min(height, width) - 1
    if kernel_size > limit:
        problem = f"must be at most {limit} for views of {height}x{width} pixels, got {kernel_size}"
        raise ConfigError([f"views.blur_kernel_size: {problem}; about a tenth of the side is usual"])


def _blurred(planes: Tensor, sigma: Tensor, radius: int) -> Tensor:
    height, width = planes.shape[2:]
    taps = gaussian_taps(sigma, radius)
    rows = band_matrix(taps, height)
    columns = rows if width == height else band_matrix(taps, width)
    return resample(rows, planes.transpose(0, 1), columns.transpose(1, 2))


def gaussian_taps(sigma: Tensor, radius: int) -> Tensor:
    """Return (n, radius + 1) kernel values at distances 0 to ``radius``; both sides together sum to 1."""
    distance = torch.arange(radius + 1, device=sigma.device)
    taps = (-0.5 * (distance / sigma.clamp_min(1e-3)[:, None]).square()).exp()  # at 1e-3 pixels all is in the middle
    return taps / (2 * taps.sum(1, keepdim=True) - 1)


def band_matrix(taps: Tensor, size: int) -> Tensor:
    """Return (n, size, size) matrices whose row i filters pixel i: pixels -j and 2 (size - 1) - j read pixel j."""
    matrix = taps.new_zeros(len(taps), size, size)
    readings = _readings(taps.shape[1], size, taps.device)
    for tap, reading in zip(taps.unbind(1), readings, strict=True):  # no matrix product: its rounding may depend on n
        matrix.addcmul_(tap[:, None, None], reading)
    return matrix


@lru_cache(maxsize=4)
def _readings(taps: int, size: int, device: torch.device) -> Tensor:
    """Return how often pixel i of a line reads pixel j through each tap, (taps, size, size); no one may write to it."""
    distance = torch.arange(taps, device=device)[:, None, None]
    row = torch.arange(size, device=device)[:, None]
    column = row.T
    direct = (row - column).abs() == distance
    left = (row + column == distance) & (column > 0)  # the border pixel itself is not doubled
    right = (2 * (size - 1) - row - column == distance) & (column < size - 1)
    return direct.float() + left + right
