"""The plan of a stream: its rows, its blocks, and the order of both in each epoch.

Shapes: n training images, G groups of rows that are read together, R rows of a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from ebclab.data.delivery.view_settings import ViewSettings
from ebclab.data.digests import index_digest
from ebclab.data.hashing import hash_words
from ebclab.data.sources.image_source import ImageSource, RowIndex

_GROUP_SALT = 0x67726F757073  # salts make the orders of groups and of rows independent
_ROW_SALT = 0x726F7773
_BLOCK_ROWS = 4096  # enough to shuffle in, few enough that an epoch of a small set still has blocks for every worker
_BLOCK_BYTES = 16 << 20  # two float views are eight times as large, and Ray Data cuts blocks above 128 MiB
_FEWEST_BLOCKS = 12


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
        """Blocks of an epoch."""
        return math.ceil(len(self.group_sizes) / self.groups_per_block)

    @cached_property
    def digest(self) -> str:
        """A short hash of the training keys and labels, to notice data that changed during a run."""
        return index_digest(self.train.keys, self.train.labels)

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
