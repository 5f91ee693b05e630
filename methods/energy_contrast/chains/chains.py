"""Persistent Langevin chains: they start from a replay buffer or anew, move, and are stored in the buffer again.

Shapes: B chains of the global batch, b of this rank, R that restart, S images of the buffer, C channels, H x W.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from energy_contrast.chains.restarts import Restarts, saturated_share
from energy_contrast.memory.replay_buffer import ReplayBuffer
from energy_contrast.method import PixelRange
from energy_contrast.parallel import gather, own_share, world_size
from energy_contrast.samplers import Sampler, SamplerInfo, Staged


class Chains(NamedTuple):
    """The chains of one step.

    Attributes:
        rows: (B,) int64 rows of the buffer that the global batch's chains come from, the same on every rank.
        counts: (B,) int32 number of earlier steps in which each was moved; chains that restart have 0.
        position: (b, C, H, W) this rank's share.
        anew: (B,) bool, which of them restart.
    """

    rows: Tensor
    counts: Tensor
    position: Tensor
    anew: Tensor


def start_chains(
    buffer: ReplayBuffer,
    restarts: Restarts,
    proposals: Tensor,
    generator: torch.Generator,
    pixel_range: PixelRange | None,
    *,
    like: Tensor,
    distinct: bool = False,
) -> Chains:
    """Draw the chains of the global batch: rows of the buffer with replacement, some of them replaced by new starts.

    Args:
        buffer: Holds images.
        restarts: Which chains restart.
        proposals: This rank's part of the views of training images for them.
        generator: Source of randomness, in the same state on every rank.
        pixel_range: Black and white; None means unknown.
        like: (b, C, H, W); this rank's chains get its shape, dtype, device and memory format.
        distinct: Draw rows without replacement if there are as many as chains.

    Returns:
        The chains.

    Raises:
        ValueError: If the buffer holds nothing yet.

    Source: EBCLR (arXiv:2202.04933), section 3.3 and algorithm 2; rows with replacement, as in the released code.
    """
    if not buffer.allocated:
        raise ValueError("buffer: holds no images yet, got no start; call start(draw), or load a saved state")
    where, batch_size = generator.device, world_size() * len(like)
    if distinct and batch_size <= buffer.size:
        rows = torch.randperm(buffer.size, generator=generator, device=where)[:batch_size].to(like.device)
    else:
        rows = torch.randint(buffer.size, (batch_size,), generator=generator, device=where).to(like.device)
    counts = buffer.counts.index_select(0, rows.to(buffer.counts.device)).to(like.device)
    position, anew = buffer.draw(own_share(rows), like.dtype)[0], torch.zeros_like(rows, dtype=torch.bool)
    if num_starts := restarts.num_starts(batch_size):
        source = restarts.draw(batch_size, generator).to(like.device)
        fresh = restarts.new_starts(proposals, generator, pixel_range, like=position, count=num_starts)
        own = own_share(source)
        position = torch.where(own.view(-1, 1, 1, 1) >= 0, fresh[own.clamp_min(0)], position)
        anew = source >= 0
        counts = torch.where(anew, 0, counts)
    channels_last = like.is_contiguous(memory_format=torch.channels_last)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return Chains(rows, counts, position.contiguous(memory_format=memory_format), anew)


def move_chains(
    sampler: Sampler,
    chains: Chains,
    context: Callable[[int, Tensor], Any],
    generator: torch.Generator,
    *,
    num_steps: int,
) -> tuple[Chains, list[SamplerInfo]]:
    """Return the chains after ``num_steps`` steps, and the info of each step on this rank's share.

    Args:
        sampler: Takes a ``Staged`` as context.
        chains: Where they start.
        context: ``context(step, position)`` returns what the sampler's energy takes beside the position.
        generator: Draws noise for the chains of all ranks, each of which takes its share.
        num_steps: T.

    Returns:
        Chains of the same rows and counts, and the steps' information.

    Source: EBCLR (arXiv:2202.04933), algorithm 1.
    """
    counts, infos = own_share(chains.counts), []
    state = sampler.init(chains.position)
    for step in range(num_steps):
        staged = Staged(counts, context(step, state.position))
        state, info = sampler.step(state, staged, own_noise(state.position, len(chains.rows), generator))
        infos.append(info)
    return chains._replace(position=state.position), infos


@torch.no_grad()
def gather_chains(chains: Chains) -> Chains:
    """Return the chains with the positions (B, C, H, W) of all ranks."""
    return chains._replace(position=gather(chains.position))


def store_chains(buffer: ReplayBuffer, chains: Chains) -> None:
    """Write gathered chains back to their rows with counts raised by 1; if a row was drawn twice, the last stays."""
    buffer.store(chains.rows, chains.position, chains.counts + 1)


def measure_chains(
    buffer: ReplayBuffer, chains: Chains, infos: list[SamplerInfo], pixel_range: PixelRange | None
) -> dict[str, Tensor]:
    """Return metrics of chains that have moved: detached scalars, to be averaged over ranks.

    Args:
        buffer: Where they came from.
        chains: This rank's chains after the steps, not gathered.
        infos: Info of each step.
        pixel_range: Black and white; None means unknown.

    Returns:
        ``chain_movement`` (root mean square of a pixel in a step), ``chain_gradient_norm`` (before the clamp),
        ``buffer_age`` (mean count), ``reinit_share``, and ``chain_saturation`` where the pixel range is known.

    Source: ours.
    """
    dtype = chains.position.dtype
    metrics = {
        "chain_movement": torch.stack([info.movement for info in infos]).mean(),
        "chain_gradient_norm": torch.stack([info.gradient_norm for info in infos]).mean(),
        "buffer_age": buffer.counts.to(dtype).mean().to(chains.position.device),
        "reinit_share": chains.anew.to(dtype).mean(),
    }
    if pixel_range is not None:
        metrics["chain_saturation"] = saturated_share(chains.position, pixel_range)
    return metrics


def own_noise(like: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """Return this rank's share of standard normal numbers that are drawn for all images of the global batch.

    Args:
        like: (b, ...); this rank's share gets its shape, dtype and device.
        batch_size: B, images of the global batch.
        generator: Source of randomness, in the same state on every rank.

    Source: ours.
    """
    shape, where = (batch_size, *like.shape[1:]), generator.device
    return own_share(torch.randn(shape, generator=generator, device=where, dtype=like.dtype)).to(like.device)
