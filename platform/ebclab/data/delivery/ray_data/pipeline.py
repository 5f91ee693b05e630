"""The Ray Data side of a stream: its plan, and tasks anywhere in the cluster that read, decode and may make views.

Shapes: n training images, G groups of rows that are read together, R rows of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch
from ray.data import Dataset, ExecutionOptions
from ray.data.context import DataContext
from torch import Tensor

from ebclab.data.hashing import hash_words
from ebclab.data.image_set import short_digest
from ebclab.data.sources.image_source import ImageSource, RowIndex, read_rows
from ebclab.data.views.pipeline import ViewSettings

_GROUP_SALT = 0x67726F757073  # salts make the orders of groups and of rows independent
_ROW_SALT = 0x726F7773
_BLOCK_ROWS = 4096  # enough to shuffle in, few enough that an epoch of a small set still has blocks for every worker
_BLOCK_BYTES = 16 << 20  # two float views are eight times as large, and Ray Data cuts blocks above 128 MiB
_FEWEST_BLOCKS = 12

EPOCH, ROW, LABEL, KEY, IMAGE, VIEWS = "epoch", "row", "label", "key", "image", "views"
"""Columns of a block: IMAGE (C, H, W) bytes, which workers make views and proposals of; where views are made in the
pipeline, VIEWS (V, C, h, w) floats, and IMAGE for proposals alone."""


@dataclass(frozen=True)
class StreamPlan:
    """Everything that the tasks of a stream need to know."""

    source: ImageSource
    train: RowIndex  # the training rows, sorted by group
    settings: ViewSettings
    rows_per_block: int  # approximately

    @cached_property
    def group_sizes(self) -> Tensor:
        """Training rows in each group that has any, (G,) int64."""
        sizes: Tensor = torch.unique_consecutive(self.train.groups, return_counts=True)[1]
        return sizes

    @cached_property
    def _first_rows(self) -> Tensor:
        return self.group_sizes.cumsum(0) - self.group_sizes

    @property
    def groups_per_block(self) -> int:
        """Number of groups that are read, shuffled and delivered together."""
        rows_per_group = len(self.train) / len(self.group_sizes)
        return max(1, round(self.rows_per_block / rows_per_group))

    @property
    def num_blocks(self) -> int:
        return math.ceil(len(self.group_sizes) / self.groups_per_block)

    @cached_property
    def digest(self) -> str:
        """A short hash of the training keys and labels, to notice data that changed during a run."""
        return short_digest(self.train.keys, self.train.labels)

    def block_rows(self, epoch: int, number: int) -> Tensor:
        """Return the training rows (R,) of a block of an epoch, in the order in which they are delivered.

        The groups come in the order of a hash of (seed, epoch, group); a block takes the next few of them and orders
        their rows by a hash of (seed, epoch, key).
        """
        seed = self.settings.seed
        order = _order_of_groups(seed, epoch, len(self.group_sizes))
        chosen = order[number * self.groups_per_block : (number + 1) * self.groups_per_block]
        sizes, first = self.group_sizes[chosen], self._first_rows[chosen]
        within = torch.arange(int(sizes.sum())) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        rows = torch.repeat_interleave(first, sizes) + within
        return rows[torch.argsort(hash_words(_ROW_SALT, seed, epoch, self.train.keys[rows]), stable=True)]


@lru_cache(maxsize=2)
def _order_of_groups(seed: int, epoch: int, count: int) -> Tensor:
    """Return the order (count,) of the groups in an epoch; cached for processes that make many of its blocks."""
    return torch.argsort(hash_words(_GROUP_SALT, seed, epoch, torch.arange(count)), stable=True)


def usual_rows_per_block(num_rows: int, image_bytes: int) -> int:
    """Return about how many rows a block should have."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // image_bytes, math.ceil(num_rows / _FEWEST_BLOCKS)))


def build_dataset(plan: StreamPlan, *, first_epoch: int) -> Dataset:
    """Return the dataset that delivers ``plan``, one epoch an execution.

    Pass it to ``streaming_split(workers, equal=True)`` or to Ray Train, with ``execution_options()`` in either case.
    A restart, after a failure or with another number of workers, needs a new dataset.
    """
    blocks = ray.data.range(plan.num_blocks, override_num_blocks=plan.num_blocks)
    dataset = blocks.map_batches(
        _block_maker(ray.put(plan), first_epoch), batch_size=None, batch_format="numpy", zero_copy_batch=True
    )
    dataset.context.execution_options = execution_options()
    dataset.context.enable_progress_bars = False
    dataset.context.print_on_execution_start = False
    return dataset


def execution_options() -> ExecutionOptions:
    """Return the execution options: blocks keep their order, so that equal runs get equal batches."""
    return ExecutionOptions(preserve_order=True)


def _block_maker(plan_ref: Any, first_epoch: int) -> Callable[[dict[str, np.ndarray]], pa.Table]:
    """Return the task that makes one block, a closure over small values.

    It imports torch only where it runs, so that Ray Data's own processes, which only pass it on, need not.
    """

    def make_block(numbers: dict[str, np.ndarray]) -> pa.Table:
        from ebclab.data.delivery.ray_data.pipeline import _blocks

        return _blocks(plan_ref, first_epoch, numbers)

    return make_block


def _blocks(plan_ref: Any, first_epoch: int, numbers: dict[str, np.ndarray]) -> pa.Table:
    torch.set_num_threads(1)  # tasks share the machine with each other and with the workers
    # Ray Data has no other way to tell a task the number of its execution; the worker checks the epoch of every batch.
    epoch = first_epoch + DataContext.get_current()._execution_idx
    plan = _plan_of(plan_ref)
    return pa.concat_tables([_block(plan, epoch, int(number)) for number in numbers["id"]])


_KEPT: dict[str, StreamPlan] = {}
"""Cache of the last task's plan, by its reference in Ray's object store: with a million images, reading takes 0.4 s."""


def _plan_of(plan_ref: Any) -> StreamPlan:
    name = plan_ref.hex()
    if name not in _KEPT:
        _KEPT.clear()
        _KEPT[name] = ray.get(plan_ref)
    return _KEPT[name]


def _block(plan: StreamPlan, epoch: int, number: int) -> pa.Table:
    rows = plan.block_rows(epoch, number)
    index = plan.train.at(rows)
    images = read_rows(plan.source, index).images
    columns: dict[str, np.ndarray | pa.Array] = {
        EPOCH: np.full(len(rows), epoch),
        ROW: rows.numpy(),
        LABEL: index.labels.numpy(),
        KEY: index.keys.numpy(),
    }
    settings = plan.settings
    if settings.num_proposals or not settings.on_pipeline:
        columns[IMAGE] = pa.FixedShapeTensorArray.from_numpy_ndarray(images.numpy())
    if not settings.on_pipeline:
        return pa.table(columns)
    # A task does not know the batch of a row; settings that would need it were refused before.
    views = settings.views_of(images, index.keys, rows, epoch=epoch, position=-1)
    by_image = views.transpose(0, 1).contiguous()  # (R, V, C, h, w)
    return pa.table({**columns, VIEWS: pa.FixedShapeTensorArray.from_numpy_ndarray(by_image.numpy())})
