"""What a preparation writes: rows of a split, from memory or from where they are, and their shards.

A shard has a form of stored images, and is written in little memory.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from ebclab.config.sections import DataConfig
from ebclab.data.hashing import hash_words
from ebclab.data.holdout import limit, limited
from ebclab.data.image_set import ImageSet, content_digest, short_digest
from ebclab.data.photograph import Decoded, Example, LeftOut, Reading
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.columns import INDEX_COLUMN
from ebclab.data.sources.image_source import ImageSource, RowIndex, Statistics, read_rows, training_statistics
from ebclab.data.sources.load import load_split, open_source
from ebclab.data.sources.location import location_of
from ebclab.errors import UserError
from ebclab.hardware import free_bytes, usable_processors

_HELD_SHARE = 0.25  # of the memory that is free, for each split
_GROUP_ROWS = 1024  # a row group is the least that is read at once: small, so that a block mixes several
_GROUP_BYTES = 8 << 20  # the same for large images
_SHARD_BYTES = 128 << 20  # object stores read files of this size at full speed
_FEWEST_SHARDS = 8  # tools that share out whole files feed up to as many readers
_ORDER_SALT = 0x7368617264  # names this use of the keys


class _HeldImages(ImageSource):
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
        source = _HeldImages(images.name, decoded, RowIndex.grouped(images.keys, images.labels, marks=images.marks))
        source.class_names, source.statistics = images.class_names, Statistics(images.mean, images.std)
        source.files_digest = content_digest(images)
        return cls(source, source.index)

    @property
    def reads_groups(self) -> bool:
        """Whether reading one row reads its whole group, so that reading few rows at a time is slow."""
        return not isinstance(self.source, _HeldImages) and len(set(self.index.groups.tolist())) < len(self.index)

    def held(self) -> SplitRows:
        """Return the same rows with their images in memory; each group of the source is read once."""
        source = self.source
        held = _HeldImages(source.name, read_rows(source, self.index, threads=usable_processors()), self.index)
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
            "index": short_digest(self.index.keys, self.index.labels),
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
    if not rows.reads_groups or len(rows.index) * source.image_bytes > _HELD_SHARE * free_bytes(torch.device("cpu")):
        return rows
    return rows.held()


@dataclass(frozen=True)
class Storage:
    """How images are stored."""

    form: Literal["pixels", "jpeg"] = "pixels"  # jpeg takes a tenth of the space and must be decoded again
    quality: int = 90  # of JPEG files, 1 to 100; colours keep their resolution (4:4:4)

    @property
    def in_words(self) -> str:
        return "fixed_shape_tensor<uint8>[C, H, W]" if self.form == "pixels" else f"JPEG of quality {self.quality}"

    def column(self, images: Tensor) -> pa.Array:
        """Return images (n, C, H, W) uint8 as they are stored."""
        if self.form == "jpeg":
            return pa.array([self._encoded(image) for image in images], pa.binary())
        if len(images):
            return pa.FixedShapeTensorArray.from_numpy_ndarray(images.contiguous().numpy())
        kind = pa.fixed_shape_tensor(pa.uint8(), images.shape[1:])
        return pa.ExtensionArray.from_storage(kind, pa.array([], kind.storage_type))

    def _encoded(self, image: Tensor) -> bytes:
        pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
        buffer = io.BytesIO()
        Image.fromarray(pixels.contiguous().numpy()).save(buffer, "JPEG", quality=self.quality, subsampling="4:4:4")
        return buffer.getvalue()


def storage_named(name: str, quality: int) -> Storage:
    """Return how images are stored."""
    if name not in ("pixels", "jpeg"):
        raise UserError(f"--store: must be pixels or jpeg, got {name}")
    return Storage(cast(Literal["pixels", "jpeg"], name), quality)


def shard_count(images: int, image_bytes: int, asked: int = 0) -> int:
    """Return in how many files a split is stored: as many as the user asked for, or by size."""
    groups = math.ceil(images / group_rows(image_bytes))
    return min(asked or max(_FEWEST_SHARDS, math.ceil(images * image_bytes / _SHARD_BYTES)), max(1, groups))


def group_rows(image_bytes: int) -> int:
    """Return the rows of a row group."""
    return max(1, min(_GROUP_ROWS, _GROUP_BYTES // image_bytes))


def rows_of_shards(split: SplitRows, count: int) -> tuple[Tensor, ...]:
    """Return the rows of each of ``count`` shards, in the order of a hash of their keys."""
    return torch.argsort(hash_words(_ORDER_SALT, split.index.keys), stable=True).tensor_split(count)


def write_shard(
    path: Path,
    split: SplitRows,
    rows: Tensor,
    storage: Storage,
    *,
    threads: int = 1,
    done: Callable[[int], None] = lambda count: None,
) -> tuple[int, list[LeftOut]]:
    """Write some rows of a split as a Parquet file in this order, and sync it; return how many, and those left out.

    One row group at a time is in memory; the whole shard if the source is read in groups.

    Args:
        threads: Number of images that are decoded at a time.
        done: Called with the number of rows after every part; an exception that it raises stops the work.
    """
    in_group = group_rows(split.source.image_bytes)
    at_once = max(in_group, _SHARD_BYTES // split.source.image_bytes) if split.reads_groups else in_group
    schema = _table(split.index.at(rows[:0]), torch.empty(0, *split.source.example.shape).byte(), storage).schema
    compression = "zstd" if storage.form == "pixels" else "none"
    written, left_out = 0, []
    with (
        path.open("wb") as file,
        pq.ParquetWriter(file, schema, compression=compression, write_page_checksum=True) as writer,
    ):
        for part in torch.split(rows, at_once):
            index = split.index.at(part)
            decoded = read_rows(split.source, index, threads)
            writer.write_table(_table(index.at(decoded.good), decoded.images, storage), row_group_size=in_group)
            written += len(decoded.images)
            left_out += decoded.left_out
            done(len(part))
        writer.close()
        file.flush()
        os.fsync(file.fileno())
    return written, left_out


def _table(index: RowIndex, images: Tensor, storage: Storage) -> pa.Table:
    return pa.table({"image": storage.column(images), "label": index.labels.numpy(), INDEX_COLUMN: index.keys.numpy()})
