"""Proposals: fresh views of training images outside the batch, from which chains of samples start anew.

Both deliveries make them here from the images that they chose. A slot is the number of a proposal within the global
batch; ranks share the slots as ``torch.tensor_split`` does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views

CHOICE_SALT = 0x63686F696365
"""First word of the hashes that choose the images of proposals."""

_FRESH_SALT = 0x6672657368


def own_slots(count: int, rank: int, world_size: int, device: torch.device) -> Tensor:
    """Return the slots (P,) of this rank out of ``count`` for the global batch; P may differ between ranks by one."""
    return torch.arange(count, device=device).tensor_split(world_size)[rank]


def fresh_views(
    images: Tensor,
    keys: Tensor,
    slots: Tensor,
    views: ViewsConfig,
    preprocessing: Preprocessing,
    *,
    seed: int,
    epoch: int,
    step: int,
    channels_last: bool,
) -> Tensor:
    """Return one view (P, C, h, w) of each image, different from its views in the epoch and in other slots.

    Args:
        images: (P, C, H, W) uint8.
        keys: (P,) their keys.
        slots: (P,) the slots that they are for.
        views: How views are drawn.
        preprocessing: Size and normalisation of the views.
        epoch: Epoch, from 0.
        step: Number of the batch since the start of the run.
        channels_last: Make views in NHWC memory order.
    """
    fresh = hash_words(_FRESH_SALT, step, slots, keys)
    shared = None if views.shared_by == "image" else fresh.new_full(fresh.shape, int(hash_words(_FRESH_SALT, step)))
    return make_views(
        images,
        fresh,
        views,
        preprocessing,
        seed=seed,
        epoch=epoch,
        num_views=1,
        channels_last=channels_last,
        shared=shared,
    )[0]
