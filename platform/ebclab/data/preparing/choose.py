"""What `data prepare` writes, by its settings: images of the catalogue from memory, others from where they lie."""

from __future__ import annotations

from typing import Literal, cast

import torch

from ebclab.config.sections import DataConfig
from ebclab.data.holdout import limit, limited
from ebclab.data.preparing.shards import Storage
from ebclab.data.preparing.split_rows import SplitRows
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.load import load_split, open_source
from ebclab.data.sources.location import location_of
from ebclab.errors import UserError
from ebclab.hardware import free_bytes

_HELD_SHARE = 0.25  # of the memory that is free, for each split


def split_rows(data: DataConfig, split: Split, train_limit: int = 0) -> SplitRows:
    """Return the rows of one split.

    Images that are read in groups, as those of Parquet files are, are held in memory where they take a quarter of what
    is free, so that each group is read once; else a group is read again for every shard that wants some of its rows.

    Args:
        data: The dataset, and how it is read.
        train_limit: Training images that are kept, chosen by hash; 0 means all.
    """
    count, reading = (train_limit if split == "train" else 0), Reading.of(data)
    if location_of(data.name) is None:
        return SplitRows.of(limit(load_split(data.name, data.root, split, reading), count))
    source = open_source(data.name, split, reading)
    rows = SplitRows(source, source.index.at(limited(source.index.keys, count)))
    if not rows.reads_groups or len(rows.index) * rows.image_bytes > _HELD_SHARE * free_bytes(torch.device("cpu")):
        return rows
    return rows.held()


def storage_named(name: str, quality: int) -> Storage:
    """Return how images are stored."""
    if name not in ("pixels", "jpeg"):
        raise UserError(f"--store: must be pixels or jpeg, got {name}")
    return Storage(cast(Literal["pixels", "jpeg"], name), quality)
