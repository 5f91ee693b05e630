"""Batches of views from a training set that lives on the device as bytes.

A batch is a pure function of (seed, epoch, position) and can be computed at any time: a resumed run needs no replay,
and each rank takes its slice of the global batch that a single rank would see.

Shapes: V views, B images of this rank, C channels, H x W pixels, P proposals of this rank.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from ebclab.data.delivery.choose import require_batch
from ebclab.data.hashing import hash_words, integers_below
from ebclab.data.image_set import ImageSet
from ebclab.data.views.parameters import words_of_draw
from ebclab.data.views.pipeline import CHOICE_SALT, ViewSettings, own_slots
from ebclab.errors import DataError
from ebclab.hardware import free_bytes
from energy_contrast.method import Batch

_ORDER_SALT = 0x6F72646572  # salts make order, choice and views independent


class ResidentData:
    """A training set on one device that makes the ``num_batches`` global batches of an epoch, or a rank's slices."""

    def __init__(
        self,
        train: ImageSet,
        settings: ViewSettings,
        *,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        batch_size, device = settings.batch_size, torch.device(device)
        require_batch(len(train), batch_size, world_size)
        if settings.num_proposals and batch_size == len(train):
            raise DataError(
                f"training.batch_size: this method needs images outside the batch, got {batch_size} "
                f"for {len(train)} images; use at most {len(train) - 1}"
            )
        _require_room(train, device)
        self.num_batches = len(train) // batch_size
        self._settings, self._channels_last, share = settings, channels_last, batch_size // world_size
        self._own = slice(rank * share, (rank + 1) * share)  # of a global batch
        self._slots = own_slots(settings.num_proposals, rank, world_size, device)
        self._images, self._labels, self._keys = (part.to(device) for part in (train.images, train.labels, train.keys))
        self._ordered_epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def batch(self, epoch: int, position: int) -> Batch:
        """Return this rank's slice of the global batch at a position in [0, num_batches) of an epoch."""
        if not 0 <= position < self.num_batches:
            raise IndexError(f"position: an epoch has {self.num_batches} batches, got {position}")
        order = self._epoch_order(epoch)
        first = position * self._settings.batch_size
        rows = order[first : first + self._settings.batch_size][self._own]  # (B,)
        views = self._settings.views_of(
            self._images[rows],
            self._keys[rows],
            rows,
            epoch=epoch,
            position=position,
            channels_last=self._channels_last,
        )
        return Batch(views, self._labels[rows], rows, self._proposals(order, epoch, position))

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Return (count, C, H, W) views of training images drawn with replacement.

        The generator, on any device, is the source of the choice and of the views' parameters.
        """
        where, device = generator.device, self._images.device
        rows = torch.randint(len(self._images), (count,), generator=generator, device=where).to(device)
        keys = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator, device=where).to(device)
        shared = words_of_draw(self._settings.views, keys)
        return self._settings.make(self._images[rows], keys, 0, 1, shared, self._channels_last)[0]

    def _epoch_order(self, epoch: int) -> Tensor:
        """Return the rows (n,) in the order of ``epoch``; cached until the epoch changes."""
        if epoch != self._ordered_epoch:
            self._order = torch.argsort(hash_words(_ORDER_SALT, self._settings.seed, epoch, self._keys), stable=True)
            self._ordered_epoch = epoch
        return self._order

    def _proposals(self, order: Tensor, epoch: int, position: int) -> Tensor:
        """Return (P, C, H, W) views of images outside the global batch, each uniform and independent of the others."""
        settings, slots = self._settings, self._slots
        if len(slots) == 0:
            side = settings.preprocessing.image_size
            return torch.empty(0, self._images.shape[1], side, side, device=order.device)
        step = epoch * self.num_batches + position
        others = len(order) - settings.batch_size
        places = integers_below(hash_words(CHOICE_SALT, settings.seed, step, slots), others)  # (P,) among the others
        first = position * settings.batch_size
        rows = order[torch.where(places < first, places, places + settings.batch_size)]  # skips the rows of the batch
        return settings.fresh_views(
            self._images[rows], self._keys[rows], slots, epoch=epoch, step=step, channels_last=self._channels_last
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
