"""Starts of Langevin chains, in a new buffer and later: views of training images, uniform pixels, samples of a class.

Shapes: B chains of the global batch, R new starts or samples, N images, C channels, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from energy_contrast.memory.replay_buffer import ReplayBuffer
from energy_contrast.method import Draw, PixelRange
from energy_contrast.parallel import gather_parts

MARGIN = 0.1
"""How far the noise of views may reach beyond black and white, as a share of their distance."""

Drawn = Literal["with-replacement", "without-replacement", "each"]

_FILL_CHUNK = 1024  # images drawn at a time


@dataclass(frozen=True)
class Restarts:
    """Which chains restart, and from what.

    Attributes:
        rate: rho.
        uniform_rate: Probability that a new start is uniform pixels instead of a view of a training image.
        first_count: Count that the first images of a buffer are given.
        drawn: ``with-replacement``: ``floor(B rho)`` of the B chains are drawn with replacement, so that a share of
            about ``1 - exp(-rho)`` starts anew; ``without-replacement``: they are different chains; ``each``: each
            chain starts anew independently, with probability rho.

    Source: EBCLR (arXiv:2202.04933), section 3.3: q_0 and rho; with replacement as in the released code, ``each`` as
    printed there and in JEM (arXiv:1912.03263), algorithm 1.
    """

    rate: float
    uniform_rate: float
    first_count: int
    drawn: Drawn = "with-replacement"

    def num_starts(self, batch_size: int) -> int:
        """Return R, the number of new starts prepared for a global batch; not all of them need be used."""
        if self.drawn == "each":
            return batch_size if self.rate > 0 else 0
        return int(batch_size * self.rate + 1e-9)  # in floating point, 0.29 * 100 < 29

    def num_proposals(self, batch_size: int) -> int:
        """Return the number of views of training images that the new starts need."""
        return self.num_starts(batch_size) if self.uniform_rate < 1 else 0

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor:
        """Return (B,) the index of the new start that each chain takes, -1 if it continues; on the generator's device.

        Args:
            batch_size: B.
            generator: Source of randomness, in the same state on every rank.
        """
        where, starts = generator.device, self.num_starts(batch_size)
        own = torch.arange(batch_size, device=where)
        if self.drawn == "each":
            chosen = torch.rand(batch_size, generator=generator, device=where) < self.rate
            return torch.where(chosen, own, -1)
        if self.drawn == "without-replacement":
            places = torch.randperm(batch_size, generator=generator, device=where)[:starts]
        else:
            places = torch.randint(batch_size, (starts,), generator=generator, device=where)
        hit = places == own[:, None]  # (B, R); a chain that was drawn more than once takes its last start
        return torch.where(hit, torch.arange(starts, device=where), -1).amax(dim=1)

    def new_starts(
        self, proposals: Tensor, generator: torch.Generator, pixel_range: PixelRange | None, *, like: Tensor, count: int
    ) -> Tensor:
        """Return (R, C, H, W) new starts, the same on every rank.

        Args:
            proposals: This rank's part of ``num_proposals`` views of training images.
            generator: Source of randomness, in the same state on every rank.
            pixel_range: Black and white; None means unknown.
            like: (..., C, H, W); new starts get its image shape, dtype and device.
            count: R.

        Raises:
            ValueError: If uniform pixels are asked for and the pixel range is unknown.
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
        """Allocate a buffer on ``device`` and fill it with new starts of count ``first_count``.

        Args:
            buffer: Not allocated yet.
            draw: Returns views of training images.
            generator: Source of randomness, in the same state on every rank.
            device: Device of the buffer.
            pixel_range: Black and white; None means unknown.

        Raises:
            ValueError: If a pixel range is needed and unknown.
        """
        if buffer.dtype == "uint8":
            buffer.bounds = _widened(_known(pixel_range, "images as uint8"))
        for first in range(0, buffer.size, _FILL_CHUNK):
            images = draw(min(_FILL_CHUNK, buffer.size - first), generator)
            if not buffer.allocated:
                buffer.allocate(images.shape[1:], images.dtype, device)
            rows = torch.arange(first, first + len(images), device=images.device)
            buffer.store(rows, self._mix(images, generator, pixel_range), torch.full_like(rows, self.first_count))

    def _mix(self, images: Tensor, generator: torch.Generator, pixel_range: PixelRange | None) -> Tensor:
        """Return images (N, C, H, W), each replaced by uniform pixels with probability ``uniform_rate``."""
        if self.uniform_rate == 0:
            return images
        low, high = _levels(_known(pixel_range, "uniform starts"), images.dtype, images.device)
        where = generator.device
        chosen = torch.rand(len(images), generator=generator, device=where) < self.uniform_rate
        uniform = torch.rand(images.shape, generator=generator, device=where, dtype=images.dtype).to(images.device)
        return torch.where(chosen.to(images.device).view(-1, 1, 1, 1), low + (high - low) * uniform, images)


def class_gaussian_samples(images: Tensor, labels: Tensor, picked: Tensor, noise: Tensor) -> Tensor:
    """Return samples of Gaussians that have the means and covariances of classes of images.

    ``x_r = mu + n^-1/2 sum_i epsilon_ri (x_i - mu)`` over the n images i of the class of image ``picked[r]``, whose
    mean is mu. With standard normal epsilon its covariance is ``1/n sum_i (x_i - mu)(x_i - mu)^T``, which is never
    formed.

    Args:
        images: (N, C, H, W).
        labels: (N,) int64.
        picked: (R,) int64 rows of ``images`` whose classes are sampled; uniform rows sample classes by frequency.
        noise: (R, N) standard normal numbers, epsilon.

    Returns:
        (R, C, H, W) samples; an image itself where it is the only one of its class.

    >>> three = torch.tensor([1.0, 3.0, 9.0]).view(3, 1, 1, 1)
    >>> picked, noise = torch.tensor([0, 2]), torch.ones(2, 3) * torch.tensor([1.0, -1.0, 5.0])
    >>> class_gaussian_samples(three, torch.tensor([0, 0, 1]), picked, noise).flatten()
    tensor([0.5858, 9.0000])

    Source: JEM++ (arXiv:2109.09032), informative initialisation: the mixture of one Gaussian for each class.
    """
    same = (labels[picked][:, None] == labels).to(images.dtype)  # (R, N)
    share = same / same.sum(dim=1, keepdim=True)
    spread = noise * share.sqrt()  # epsilon n^-1/2 within the class, 0 elsewhere
    weights = share + spread - spread.sum(dim=1, keepdim=True) * share
    return (weights @ images.flatten(1)).view(len(picked), *images.shape[1:])


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
    low, high = _levels(pixel_range, images.dtype, images.device)
    margin = MARGIN * (high - low)
    return ((images < low - margin) | (images > high + margin)).to(images.dtype).mean()


@lru_cache(maxsize=16)
def _levels(pixel_range: PixelRange, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return black and white (C, 1, 1); cached, since copying them to the device makes the host wait."""
    low, high = (torch.tensor(level, dtype=dtype, device=device).view(-1, 1, 1) for level in pixel_range)
    return low, high


def _widened(pixel_range: PixelRange) -> tuple[float, float]:
    """Return bounds of pixels for all channels, with a margin for the noise of views."""
    low, high = min(pixel_range.low), max(pixel_range.high)
    return low - MARGIN * (high - low), high + MARGIN * (high - low)


def _known(pixel_range: PixelRange | None, what: str) -> PixelRange:
    if pixel_range is None:
        raise ValueError(
            f"pixel_range: {what} need to know what black and white are in views, got none; set the method's "
            "pixel_range before start"
        )
    return pixel_range
