"""Crop, flip and resize as two matrix products an image: rows times pixels times columns.

Shapes: n images, C channels, H x W source pixels, h x w result pixels. Planes are (C, n, h, w): channels outermost,
so that every colour plane of a batch is one block of memory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

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
