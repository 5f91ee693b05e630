"""Batches of views from a training set that lives on the device as bytes.

A batch is a pure function of (seed, epoch, position) and can be computed at any time: a resumed run needs no replay,
and each rank takes its slice of the global batch that a single rank would see.

Shapes: V views, B images of this rank, C channels, H x W pixels, P proposals of this rank.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.delivery.choose import require_batch
from ebclab.data.delivery.proposals import CHOICE_SALT, fresh_views, own_slots
from ebclab.data.hashing import hash_words, integers_below
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views
from ebclab.data.views.sharing import words_of_batch, words_of_draw
from ebclab.errors import DataError, UserError
from ebclab.hardware import free_bytes
from energy_contrast.method import Batch

_ORDER_SALT = 0x6F72646572  # salts make order, choice and views independent


class ResidentData:
    """A training set on one device that makes the global batches of a run, or this rank's slices of them.

    Args:
        views: How views are drawn.
        preprocessing: Size and normalisation of the views.
        batch_size: Global batch size, images; an incomplete last batch is dropped.
        num_views: Views of each image in a batch.
        num_proposals: Views of other images that come with each global batch.
        device: Device that holds the images and makes the views.
        channels_last: Make views in NHWC memory order.
        rank: Number of this rank's slice of each global batch.
        world_size: Number of equal slices of a global batch.

    Attributes:
        num_batches: Batches in an epoch.
    """

    def __init__(
        self,
        train: ImageSet,
        views: ViewsConfig,
        preprocessing: Preprocessing,
        *,
        seed: int,
        batch_size: int,
        num_views: int = 2,
        num_proposals: int = 0,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        _require_enough(train, batch_size, num_proposals)
        _require_divisible(batch_size, world_size)
        self.num_batches = len(train) // batch_size
        self._views, self._preprocessing, self._channels_last = views, preprocessing, channels_last
        self._seed, self._batch_size, self._num_views, self._num_proposals = seed, batch_size, num_views, num_proposals
        self._rank, self._world_size = rank, world_size
        device = torch.device(device)
        _require_room(train, device)
        self._images, self._labels, self._keys = (part.to(device) for part in (train.images, train.labels, train.keys))
        self._ordered_epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def batch(self, epoch: int, position: int) -> Batch:
        """Return this rank's slice of one global batch.

        Args:
            epoch: Epoch, from 0.
            position: Number of the batch within the epoch, in [0, num_batches).
        """
        if not 0 <= position < self.num_batches:
            raise IndexError(f"position: an epoch has {self.num_batches} batches, got {position}")
        order = self._epoch_order(epoch)
        first = position * self._batch_size
        rows = self._slice(order[first : first + self._batch_size])  # (B,)
        shared = words_of_batch(self._views, rows, position=position, batch_size=self._batch_size)
        views = self._make_views(rows, self._keys[rows], epoch, self._num_views, shared)  # (V, B, C, H, W)
        return Batch(views, self._labels[rows], rows, self._proposals(order, epoch, position))

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Return (count, C, H, W) views of training images drawn with replacement.

        Args:
            generator: Source of the choice and of the views' parameters; its device may differ from the images'.
        """
        where = generator.device
        rows = torch.randint(len(self._images), (count,), generator=generator, device=where)
        keys = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator, device=where)
        device = self._images.device
        keys = keys.to(device)
        return self._make_views(rows.to(device), keys, 0, 1, words_of_draw(self._views, keys))[0]

    def _epoch_order(self, epoch: int) -> Tensor:
        """Return the rows (n,) in the order of ``epoch``; cached until the epoch changes."""
        if epoch != self._ordered_epoch:
            self._order = torch.argsort(hash_words(_ORDER_SALT, self._seed, epoch, self._keys), stable=True)
            self._ordered_epoch = epoch
        return self._order

    def _proposals(self, order: Tensor, epoch: int, position: int) -> Tensor:
        """Return (P, C, H, W) views of images outside the global batch, each uniform and independent of the others."""
        slots = own_slots(self._num_proposals, self._rank, self._world_size, order.device)
        if len(slots) == 0:
            side = self._preprocessing.image_size
            return torch.empty(0, self._images.shape[1], side, side, device=order.device)
        step = epoch * self.num_batches + position
        others = len(order) - self._batch_size
        places = integers_below(hash_words(CHOICE_SALT, self._seed, step, slots), others)  # (P,) among the others
        first = position * self._batch_size
        rows = order[torch.where(places < first, places, places + self._batch_size)]  # skips the rows of the batch
        return fresh_views(
            self._images[rows],
            self._keys[rows],
            slots,
            self._views,
            self._preprocessing,
            seed=self._seed,
            epoch=epoch,
            step=step,
            channels_last=self._channels_last,
        )

    def _make_views(self, rows: Tensor, keys: Tensor, epoch: int, num_views: int, shared: Tensor | None) -> Tensor:
        return make_views(
            self._images[rows],
            keys,
            self._views,
            self._preprocessing,
            seed=self._seed,
            epoch=epoch,
            num_views=num_views,
            channels_last=self._channels_last,
            shared=shared,
        )

    def _slice(self, of_global_batch: Tensor) -> Tensor:
        """Return this rank's contiguous part of a tensor with one entry for each member of the global batch."""
        share = len(of_global_batch) // self._world_size
        return of_global_batch[self._rank * share : (self._rank + 1) * share]


def _require_enough(train: ImageSet, batch_size: int, num_proposals: int) -> None:
    require_batch(len(train), batch_size)
    if num_proposals and batch_size == len(train):
        raise DataError(
            f"training.batch_size: this method needs images outside the batch, got {batch_size} "
            f"for {len(train)} images; use at most {len(train) - 1}"
        )


def _require_divisible(batch_size: int, world_size: int) -> None:
    if batch_size % world_size:
        raise UserError(
            f"training.batch_size: must split evenly over {world_size} workers, got {batch_size}; change either number"
        )


def _require_room(train: ImageSet, device: torch.device) -> None:
    """Check that a copy of the images fits; on the CPU they are already in memory and not copied."""
    if device.type == "cpu":
        return
    needed, free = sum(part.nbytes for part in (train.images, train.labels, train.keys)), free_bytes(device)
    if needed > free:
        raise DataError(
            f"data.name: {train.name} does not fit on {device}, got {len(train)} images that need "
            f"{needed / 2**30:.2f} GiB with {free / 2**30:.2f} GiB free; set data.train_limit or resources.device=cpu"
        )
