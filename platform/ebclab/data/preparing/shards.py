"""The shards of a prepared dataset: their number, the form of stored images, and writing one in little memory."""

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

from ebclab.data.hashing import hash_words
from ebclab.data.preparing.rows import SplitRows
from ebclab.data.sources.columns import INDEX_COLUMN
from ebclab.data.sources.decode import LeftOut
from ebclab.data.sources.image_source import RowIndex, read_rows
from ebclab.errors import UserError

_GROUP_ROWS = 1024  # a row group is the least that is read at once: small, so that a block mixes several
_GROUP_BYTES = 8 << 20  # the same for large images
_SHARD_BYTES = 128 << 20  # object stores read files of this size at full speed
_FEWEST_SHARDS = 8  # tools that share out whole files feed up to as many readers
_ORDER_SALT = 0x7368617264  # names this use of the keys


@dataclass(frozen=True)
class Storage:
    """How images are stored."""

    form: Literal["pixels", "jpeg"] = "pixels"  # jpeg takes a tenth of the space and must be decoded again
    quality: int = 90  # of JPEG files, 1 to 100; colours keep their resolution (4:4:4)

    @property
    def in_words(self) -> str:
        """The content of the image column."""
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
    in_group = group_rows(split.image_bytes)
    at_once = max(in_group, _SHARD_BYTES // split.image_bytes) if split.reads_groups else in_group
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
