"""Crop, flip, resize and Gaussian blur as two matrix products an image: rows times pixels times columns.

A blur's matrix is banded, and also holds the reflection at the borders; each image has its own sigma.

Shapes: n images, C channels, H x W source pixels, h x w result pixels. Planes are (C, n, h, w): channels outermost,
so that every colour plane of a batch is one block of memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.errors import ConfigError

_FAR = 1e6  # source pixels; every triangle is 0 there


class ResizeLine(NamedTuple):
    """How one axis is cropped and resized; lengths in units of the triangle's half width.

    Output pixel i looks at the point c_i of the crop box and weighs the source pixel at p by max(0, 1 - |p - c_i|).
    """

    points: Tensor  # (n, source) places of the source pixels, far away where they are outside the crop box
    centres: Tensor  # (n, size) places that the output pixels look at

    def weights(self, total: float) -> Tensor:
        """Return (n, source, size) antialiased bilinear weights: column i, of sum ``total``, mixes output pixel i."""
        distance = (self.points[:, :, None] - self.centres[:, None, :]).abs_()
        triangle = distance.neg_().add_(1).clamp_min_(0)
        return triangle.mul_(total / triangle.sum(1, keepdim=True))


def plan_line(start: Tensor, length: Tensor, flip: Tensor | None, source: int, size: int) -> ResizeLine:
    """Return how ``length`` (n,) of ``source`` pixels from ``start`` (n,) on become ``size`` pixels.

    They are in reverse where ``flip`` (n,).
    """
    pixels = torch.arange(source, device=start.device) - start[:, None]
    outside = (pixels < 0) | (pixels >= length[:, None])
    scale = (length / size)[:, None]
    half_width = scale.clamp_min(1)
    centres = (torch.arange(size, device=start.device) + 0.5) * scale
    if flip is not None:
        centres = torch.where(flip[:, None], centres.flip(1), centres)
    return ResizeLine((pixels + 0.5 + outside * _FAR) / half_width, centres / half_width)


def resample(rows: Tensor, pixels: Tensor, columns: Tensor) -> Tensor:
    """Return rows @ pixels @ columns: (n, h, H), (n, C, H, W), (n, W, w) -> contiguous planes (C, n, h, w).

    The products are made at a width that is a multiple of 4: at others below 12, MKL's rounding of one product
    depends on how many there are.
    """
    n, channels, height, _ = pixels.shape
    width = columns.shape[2]
    if width % 4:
        columns = functional.pad(columns, (0, -width % 4))
    narrow = multiply(pixels.flatten(1, 2), columns).view(n, channels, height, -1)  # (n, C, H, w)
    planes = pixels.new_empty(channels, n, rows.shape[1], columns.shape[2])
    for channel, plane in enumerate(planes):
        multiply(rows, narrow[:, channel], out=plane)
    return planes[..., :width].contiguous()


def multiply(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the products (n, p, r) of matrices (n, p, q) and (n, q, r), float32, in ``out`` if it is given.

    MKL divides a product among threads if there are far fewer products than threads, and the parts may be rounded
    differently from the whole. Such a batch is filled up with copies of its first product until it does not.
    """
    enough = torch.get_num_threads() // 2 + 1  # MKL divides products if there are up to a third as many as threads
    if not left.is_cpu or not 0 < len(left) < enough:
        return torch.bmm(left, right, out=out)
    made = torch.bmm(_filled(left, enough), _filled(right, enough))[: len(left)]
    return made if out is None else out.copy_(made)


def _filled(matrices: Tensor, count: int) -> Tensor:
    """Return ``count`` matrices: the given ones, then copies of the first, transposed in memory as they are."""
    if matrices.stride(1) == 1 != matrices.stride(2):  # MKL rounds products with transposed factors in another way
        return _filled(matrices.transpose(1, 2), count).transpose(1, 2)
    return torch.cat([matrices, matrices[:1].expand(count - len(matrices), -1, -1)])


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
