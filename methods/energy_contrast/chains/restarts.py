"""Where Langevin chains begin: views of training images, or uniform pixels, in a buffer and anew.

Shapes: B chains of the global batch, R new starts, N images, C channels, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from energy_contrast.memory.replay_buffer import ReplayBuffer
from energy_contrast.method import Draw, PixelRange
from energy_contrast.parallel import gather_parts

MARGIN = 0.1
"""How far beyond black and white, in widths of their range, the noise of views may reach."""

_FILL_CHUNK = 1024  # images drawn at a time


@dataclass(frozen=True)
class Restarts:
    """Which chains start anew, and from what.

    Attributes:
        rate: rho; of B chains, ``floor(B rho)`` places are drawn, with replacement, and start anew.
        uniform_rate: Chance that a new start is uniform pixels instead of a view of a training image.
        first_count: Count of the images that a buffer begins with.

    Source: EBCLR (arXiv:2202.04933), algorithm 2: q_0 and rho, drawn as in the released code.
    """

    rate: float
    uniform_rate: float
    first_count: int

    def num_places(self, batch_size: int) -> int:
        """Return R, how many places of a global batch are drawn to start anew."""
        return int(batch_size * self.rate + 1e-9)  # 0.29 * 100 is less than 29

    def num_proposals(self, batch_size: int) -> int:
        """Return how many views of training images that needs."""
        return self.num_places(batch_size) if self.uniform_rate < 1 else 0

    def new_starts(
        self, proposals: Tensor, generator: torch.Generator, pixel_range: PixelRange | None, *, like: Tensor, count: int
    ) -> Tensor:
        """Return (R, C, H, W) new starts, the same on every rank.

        Args:
            proposals: This rank's part of ``num_proposals`` views of training images.
            generator: Source of randomness, in the same state on every rank.
            pixel_range: Black and white; None means unknown.
            like: (..., C, H, W) of the shape, dtype and device wanted.
            count: R.

        Raises:
            ValueError: If uniform pixels are wanted and the pixel range is unknown.
        """
        views = (
            gather_parts(proposals, count).to(like) if self.uniform_rate < 1 else like.new_empty(count, *like.shape[1:])
        )
        return self._mix(views, generator, pixel_range)

    def fill(
        self,
        buffer: ReplayBuffer,
        draw: Draw,
        generator: torch.Generator,
        device: torch.device,
        pixel_range: PixelRange | None,
    ) -> None:
        """Take memory for a buffer on ``device`` and fill it with new starts of count ``first_count``.

        Args:
            buffer: Without memory yet.
            draw: Gives views of training images.
            generator: Source of randomness, in the same state on every rank.
            device: Where the buffer shall live.
            pixel_range: Black and white; None means unknown.

        Raises:
            ValueError: If a pixel range is needed and unknown.
        """
        if buffer.dtype == "uint8":
            buffer.bounds = _widened(_known(pixel_range, "buffer_dtype", "uint8"))
        for first in range(0, buffer.size, _FILL_CHUNK):
            images = draw(min(_FILL_CHUNK, buffer.size - first), generator)
            if not buffer.allocated:
                buffer.allocate(images.shape[1:], images.dtype, device)
            rows = torch.arange(first, first + len(images), device=images.device)
            buffer.store(rows, self._mix(images, generator, pixel_range), torch.full_like(rows, self.first_count))

    def _mix(self, images: Tensor, generator: torch.Generator, pixel_range: PixelRange | None) -> Tensor:
        """Return images (N, C, H, W) of which a share, drawn one by one, is uniform between black and white."""
        if self.uniform_rate == 0:
            return images
        low, high = _levels(_known(pixel_range, "uniform_rate", self.uniform_rate), images)
        where = generator.device
        chosen = torch.rand(len(images), generator=generator, device=where) < self.uniform_rate
        uniform = torch.rand(images.shape, generator=generator, device=where, dtype=images.dtype).to(images.device)
        return torch.where(chosen.to(images.device).view(-1, 1, 1, 1), low + (high - low) * uniform, images)


def saturated_share(images: Tensor, pixel_range: PixelRange) -> Tensor:
    """Return the share of pixels that lie beyond black or white by more than ``MARGIN`` of their distance.

    ``mean [x < low - m (high - low) or x > high + m (high - low)]`` with m = 0.1, which leaves room for views' noise.

    Args:
        images: (N, C, H, W).
        pixel_range: Black and white by channel.

    Returns:
        () share.

    >>> saturated_share(torch.tensor([-1.1, 0.0, 1.1, 1.3]).view(1, 1, 2, 2), PixelRange((-1.0,), (1.0,)))
    tensor(0.2500)

    Source: ours.
    """
    low, high = _levels(pixel_range, images)
    margin = MARGIN * (high - low)
    return ((images < low - margin) | (images > high + margin)).to(images.dtype).mean()


def _levels(pixel_range: PixelRange, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return black and white (C, 1, 1) as numbers like those of ``like``."""
    return like.new_tensor(pixel_range.low).view(-1, 1, 1), like.new_tensor(pixel_range.high).view(-1, 1, 1)


def _widened(pixel_range: PixelRange) -> tuple[float, float]:
    """Return bounds that hold the pixels of views with some noise, in all channels."""
    low, high = min(pixel_range.low), max(pixel_range.high)
    return low - MARGIN * (high - low), high + MARGIN * (high - low)


def _known(pixel_range: PixelRange | None, setting: str, value: object) -> PixelRange:
    if pixel_range is None:
        raise ValueError(
            f"{setting}: needs to know what black and white are in views, got {value} and an unknown pixel range; "
            "set the method's pixel_range before start, or uniform_rate=0 and buffer_dtype=float32"
        )
    return pixel_range
