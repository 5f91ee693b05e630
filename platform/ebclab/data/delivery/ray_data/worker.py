"""Turns the blocks of a stream into a worker's batches, in order, and checks every batch.

Shapes: V views, B images of this rank, C channels, H x W stored pixels, h x w view pixels.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from ray.data import DataIterator
from ray.exceptions import RayError
from torch import Tensor

from ebclab import errors
from ebclab.data.delivery.choose import require_batch
from ebclab.data.delivery.ray_data.pipeline import EPOCH, IMAGE, KEY, LABEL, ROW, VIEWS
from ebclab.data.hashing import hash_words
from ebclab.data.views.pipeline import CHOICE_SALT, ViewSettings, own_slots
from ebclab.errors import ConfigError, DataError, EbclabError, UnsavedError, UserError
from ebclab.hardware import to_device
from energy_contrast.method import Batch

_PREFETCHED_BATCHES = 4


class StreamedData:
    """Batches of one rank from its shard of a stream, ``iterator``; they must be asked for in order.

    Every rank gets exactly ``num_batches`` batches of equal size in every epoch. The views are bit for bit those that
    resident delivery makes of the same images in the same epoch. A launch may start within an epoch: earlier batches
    are read and dropped, and with the same number of ranks the remaining batches are those of the earlier launch.

    Proposals are views of this rank's images of the batch before, which holds no image of this one; those of the first
    batch of an epoch, of the second batch. Which images, and which views, is a hash of the seed, the step and their
    keys.
    """

    def __init__(
        self,
        iterator: DataIterator,
        settings: ViewSettings,
        *,
        num_images: int,
        first_epoch: int = 0,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        require_batch(num_images, settings.batch_size, world_size)
        self.num_batches = num_images // settings.batch_size
        self._iterator, self._settings = iterator, settings
        self._share = settings.batch_size // world_size
        self._device, self._channels_last = torch.device(device), channels_last
        self._slots = own_slots(settings.num_proposals, rank, world_size, self._device)
        self._tables: Iterator[pa.Table] = iter(())
        self._read: deque[tuple[int, pa.Table]] = deque(maxlen=2 if settings.num_proposals else 1)
        self._first_epoch = first_epoch
        self._next: tuple[int, int] | None = None

    def batch(self, epoch: int, position: int) -> Batch:
        """Return this rank's part of the next batch; the first may be at any position of ``first_epoch``."""
        expected = self._next or (self._first_epoch, position)
        if (epoch, position) != expected or not 0 <= position < self.num_batches:
            raise IndexError(
                f"a stream gives its batches in order: epoch {expected[0]}, position {expected[1]} of "
                f"{self.num_batches} is next, got {epoch}, {position}"
            )
        if position == 0 or self._next is None:
            self._tables = self._start()
            self._read.clear()
        table = self._table(epoch, position)
        other = self._table(epoch, position - 1 if position else 1) if len(self._slots) else None
        last = position + 1 == self.num_batches
        self._next = (epoch + 1, 0) if last else (epoch, position + 1)
        if last:
            self.close()
        views, rows, labels = self._views(table, epoch, position)
        return Batch(views, labels, rows, self._proposals(other, epoch, position, like=views))

    def close(self) -> None:
        """Abandon the rest of the epoch, so that Ray Data frees its memory."""
        if isinstance(self._tables, Generator):
            self._tables.close()

    def _start(self) -> Iterator[pa.Table]:
        """Start an execution of the dataset, for one epoch; all ranks wait for each other here."""
        batches: Any = self._iterator.iter_batches(
            batch_size=self._share, batch_format="pyarrow", drop_last=True, prefetch_batches=_PREFETCHED_BATCHES
        )
        return iter(batches)

    def _table(self, epoch: int, position: int) -> pa.Table:
        """Return this rank's rows of a batch: one that was just read, or one further on, up to which is read."""
        while not self._read or self._read[-1][0] < position:
            passed = self._read[-1][0] + 1 if self._read else 0
            self._read.append((passed, self._take(epoch, passed)))
        return dict(self._read)[position]

    def _take(self, epoch: int, position: int) -> pa.Table:
        """Return the next rows of the stream, which must be of ``epoch``."""
        try:
            table = next(self._tables, None)
        except RayError as error:
            raise user_error_in(error) or error from error
        if table is None:
            raise DataError(
                f"epoch {epoch}: the stream ended early, got {position} of {self.num_batches} batches; "
                "the files have changed since the run began"
            )
        epochs = pa.compute.min_max(table.column(EPOCH)).as_py()
        if epochs != {"min": epoch, "max": epoch}:
            raise DataError(
                f"epoch {epoch}: the stream delivered views of another epoch, got {epochs['min']} to {epochs['max']}; "
                "each launch needs its own dataset"
            )
        return table

    def _views(self, table: pa.Table, epoch: int, position: int) -> tuple[Tensor, Tensor, Tensor]:
        rows, labels, keys = (to_device(_vector(table, name), self._device) for name in (ROW, LABEL, KEY))
        settings = self._settings
        if settings.on_pipeline:
            views = to_device(_laid_out(_array(table, VIEWS), self._channels_last), self._device)
        else:
            images = to_device(torch.from_numpy(_array(table, IMAGE).copy()), self._device)
            views = settings.views_of(
                images, keys, rows, epoch=epoch, position=position, channels_last=self._channels_last
            )
        return views, rows, labels

    def _proposals(self, table: pa.Table | None, epoch: int, position: int, *, like: Tensor) -> Tensor:
        """Return (P, C, h, w) views of images of another batch, each image once unless more are asked for."""
        if table is None:
            return like.new_empty(0, *like.shape[2:])
        settings, step = self._settings, epoch * self.num_batches + position
        keys = to_device(_vector(table, KEY), self._device)
        order = torch.argsort(hash_words(CHOICE_SALT, settings.seed, step, keys), stable=True)
        chosen = order[torch.arange(len(self._slots), device=self._device) % len(order)]
        images = to_device(torch.from_numpy(_array(table, IMAGE).copy()), self._device)
        return settings.fresh_views(
            images[chosen], keys[chosen], self._slots, epoch=epoch, step=step, channels_last=self._channels_last
        )


def user_error_in(error: RayError) -> EbclabError | None:
    """Return the error of ebclab that made a task of the stream fail; None if it was another error.

    Ray Data wraps the exception of a task in one of its own, and only the text of both reaches the worker.
    """
    line = re.search(rf"^{errors.__name__}\.(\w+): (.*)$", str(error), re.MULTILINE)
    if line is None:
        return None
    kind = getattr(errors, line[1], UserError)
    if kind is ConfigError:
        return ConfigError([line[2]])
    return UserError(line[2]) if kind is UnsavedError else kind(line[2])


def _laid_out(by_image: np.ndarray, channels_last: bool) -> Tensor:
    """Return views (V, B, C, h, w), laid out as wanted, of an array (B, V, C, h, w)."""
    if not channels_last:
        return torch.from_numpy(np.ascontiguousarray(by_image.swapaxes(0, 1)))
    return torch.from_numpy(np.ascontiguousarray(by_image.transpose(1, 0, 3, 4, 2))).permute(0, 1, 4, 2, 3)


def _vector(table: pa.Table, name: str) -> Tensor:
    vector: Tensor = torch.from_numpy(table.column(name).to_numpy().copy())
    return vector


def _array(table: pa.Table, name: str) -> np.ndarray:
    """Return a column of fixed-shape tensors, without a copy if it is contiguous; do not write to it."""
    column = table.column(name)
    array: np.ndarray = (column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()).to_numpy_ndarray()
    return array
