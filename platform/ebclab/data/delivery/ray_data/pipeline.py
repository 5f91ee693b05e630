"""The Ray Data side of a stream: tasks anywhere in the cluster that read, decode and, if asked, make views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch
from ray.data import Dataset, ExecutionOptions
from ray.data.context import DataContext

from ebclab.data.delivery.ray_data.plan import StreamPlan
from ebclab.data.sources.image_source import read_rows

EPOCH, ROW, LABEL, KEY, IMAGE, VIEWS = "epoch", "row", "label", "key", "image", "views"
"""Columns of a block: IMAGE (C, H, W) bytes, which workers make views and proposals of; where views are made in the
pipeline, VIEWS (V, C, h, w) floats, and IMAGE for proposals alone."""


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
    columns: dict[str, Any] = {
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
