"""The settings on which the views of a run depend, and its views of images: the same in memory and in a stream.

Proposals are fresh views of training images outside the batch, from which chains of samples restart. A slot is the
number of a proposal within the global batch; ranks share the slots as ``torch.tensor_split`` does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views
from ebclab.data.views.parameters import words_of_batch

CHOICE_SALT = 0x63686F696365
"""First word of the hashes that choose the images of proposals."""

_FRESH_SALT = 0x6672657368


@dataclass(frozen=True)
class ViewSettings:
    """The settings on which the views of a run depend."""

    views: ViewsConfig
    preprocessing: Preprocessing  # size and normalisation of the views
    seed: int
    batch_size: int  # images of a global batch; an incomplete last batch is dropped
    num_views: int = 2  # of each image
    num_proposals: int = 0  # that come with each global batch
    on_pipeline: bool = False  # views of a stream are made in Ray Data's tasks, not in the worker

    def views_of(
        self, images: Tensor, keys: Tensor, rows: Tensor, *, epoch: int, position: int, channels_last: bool = False
    ) -> Tensor:
        """Return the views (V, B, C, h, w) of those images (B, C, H, W) of one batch that have ``keys`` (B,).

        ``rows`` (B,) are their rows in the training set, and ``position`` is the number of the batch within the epoch.
        """
        shared = words_of_batch(self.views, rows, position=position, batch_size=self.batch_size)
        return self.make(images, keys, epoch, self.num_views, shared, channels_last)

    def fresh_views(
        self, images: Tensor, keys: Tensor, slots: Tensor, *, epoch: int, step: int, channels_last: bool
    ) -> Tensor:
        """Return one view (P, C, h, w) of each image, unlike its views in the epoch and in other ``slots`` (P,).

        ``step`` is the number of the batch since the start of the run.
        """
        fresh = hash_words(_FRESH_SALT, step, slots, keys)
        word = None if self.views.shared_by == "image" else int(hash_words(_FRESH_SALT, step))
        shared = None if word is None else fresh.new_full(fresh.shape, word)
        return self.make(images, fresh, epoch, 1, shared, channels_last)[0]

    def make(
        self, images: Tensor, keys: Tensor, epoch: int, num_views: int, shared: Tensor | None, channels_last: bool
    ) -> Tensor:
        """Return views as ``make_views`` does."""
        return make_views(
            images,
            keys,
            self.views,
            self.preprocessing,
            seed=self.seed,
            epoch=epoch,
            num_views=num_views,
            channels_last=channels_last,
            shared=shared,
        )


def own_slots(count: int, rank: int, world_size: int, device: torch.device) -> Tensor:
    """Return the slots (P,) of this rank out of ``count`` for the global batch; P may differ between ranks by one."""
    return torch.arange(count, device=device).tensor_split(world_size)[rank]
