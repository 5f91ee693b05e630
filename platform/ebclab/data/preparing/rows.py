"""The rows of a split that a preparation writes: images of the catalogue from memory, others from where they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ebclab.config.sections import DataConfig
from ebclab.data.digests import content_digest, index_digest
from ebclab.data.holdout import limit, limited
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Decoded, Example, Reading
from ebclab.data.sources.image_source import ImageSource, RowIndex, Statistics, read_rows, training_statistics
from ebclab.data.sources.load import load_split, open_source
from ebclab.data.sources.location import location_of
from ebclab.hardware import free_bytes, usable_processors

_HELD_SHARE = 0.25  # of the memory that is free, for each split


class HeldImages(ImageSource):
    """Images in memory as a source with a single group; images left out on reading stay left out."""

    def __init__(self, name: str, decoded: Decoded, index: RowIndex) -> None:
        """Hold those rows of ``index``, whose groups are ignored, that were decoded."""
        channels, height, width = decoded.images.shape[1:]
        self.name, self.reading, self.example = name, Reading(), Example(name, (channels, height, width))
        self.index = RowIndex.grouped(index.keys, index.labels, torch.tensor([len(index)]), index.marks)
        self._decoded = decoded
        self._image_of = decoded.good.cumsum(0) - 1  # position of a good row among the images
        self._left_out = dict(zip((~decoded.good).nonzero().flatten().tolist(), decoded.left_out, strict=True))

    def read(self, group: int, places: Tensor) -> Decoded:
        good = self._decoded.good[places]
        left_out = [self._left_out[row] for row in places[~good].tolist()]
        return Decoded(self._decoded.images[self._image_of[places[good]]], good, left_out)


@dataclass(frozen=True)
class SplitRows:
    """One split as it is written."""

    source: ImageSource
    index: RowIndex  # the rows to write
    origin: ImageSource | None = None  # source of the whole split, for its statistics; None means ``source``

    @classmethod
    def of(cls, images: ImageSet) -> SplitRows:
        """Return all of a set in memory."""
        decoded = Decoded(images.images, torch.ones(len(images), dtype=torch.bool), [])
        source = HeldImages(images.name, decoded, RowIndex.grouped(images.keys, images.labels, marks=images.marks))
        source.class_names, source.statistics = images.class_names, Statistics(images.mean, images.std)
        source.files_digest = content_digest(images)
        return cls(source, source.index)

    @property
    def image_bytes(self) -> int:
        """Bytes of one image."""
        return math.prod(self.source.example.shape)

    @property
    def reads_groups(self) -> bool:
        """Whether reading one row reads its whole group, so that reading few rows at a time is slow."""
        return not isinstance(self.source, HeldImages) and len(set(self.index.groups.tolist())) < len(self.index)

    def held(self) -> SplitRows:
        """Return the same rows with their images in memory; each group of the source is read once."""
        source = self.source
        held = HeldImages(source.name, read_rows(source, self.index, threads=usable_processors()), self.index)
        held.class_names, held.statistics, held.reading = source.class_names, source.statistics, source.reading
        held.files_digest = source.files_digest
        return SplitRows(held, held.index, source)

    def statistics(self) -> Statistics:
        """Return the channel statistics of the whole split that rows were chosen from."""
        return training_statistics(self.origin or self.source)

    def facts(self) -> dict[str, object]:
        """Return the facts on which the written split depends."""
        return {
            "images": len(self.index),
            "index": index_digest(self.index.keys, self.index.labels),
            "files": self.source.files_digest,
        }


def split_rows(data: DataConfig, split: Split, train_limit: int = 0) -> SplitRows:
    """Return the rows of one split, of which ``train_limit`` training images are kept by hash; 0 means all.

    Images that are read in groups, as those of Parquet files are, are held in memory where they take a quarter of what
    is free, so that each group is read once; else a group is read again for every shard that wants some of its rows.
    """
    count, reading = (train_limit if split == "train" else 0), Reading.of(data)
    if location_of(data.name) is None:
        return SplitRows.of(limit(load_split(data.name, data.root, split, reading), count))
    source = open_source(data.name, split, reading)
    rows = SplitRows(source, source.index.at(limited(source.index.keys, count)))
    if not rows.reads_groups or len(rows.index) * rows.image_bytes > _HELD_SHARE * free_bytes(torch.device("cpu")):
        return rows
    return rows.held()
