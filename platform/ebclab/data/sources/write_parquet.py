"""Any dataset as a Parquet set that Ray Data, Arrow and others can stream: shards, a description and checksums."""

from __future__ import annotations

import glob
import hashlib
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from ebclab.config.addresses import expanded, is_address
from ebclab.data.hashing import hash_words
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.parquet import CHECKSUMS, DESCRIPTION, INDEX_COLUMN
from ebclab.errors import DataError
from ebclab.storage import atomic
from ebclab.storage.filesystem import Location

FORMAT = 1

_GROUP_ROWS = 1024  # a row group is the least that is read at once: small, so that a block mixes several
_GROUP_BYTES = 8 << 20  # the same for large images
_SHARD_BYTES = 128 << 20  # object stores read files of this size at full speed
_FEWEST_SHARDS = 8  # tools that share out whole files feed up to as many readers
_ORDER_SALT = 0x7368617264  # names this use of the keys


def prepare_dataset(
    splits: dict[Split, ImageSet], folder: str | Path, *, shards: int = 0, progress: Callable[[str], None] = print
) -> None:
    """Write a dataset to ``folder`` as Parquet shards; a local folder appears whole or not at all.

    Rows lie in the order of a hash of their keys, so that neighbours in a shard have nothing in common. Each split
    is a sub-folder of shards with the columns ``image`` (fixed-shape tensor (C, H, W) of unsigned bytes), ``label``
    and ``index`` (the sample key).

    Args:
        splits: The images of each split; "train" must be among them.
        folder: A folder that does not exist, or is empty; or the address of one in an object store.
        shards: Files of each split; 0 means one for each 128 MB of images, at least eight, but none below one row
            group of 1,024 rows or 8 MB.
        progress: Called with one line a split.

    Raises:
        DataError: The folder is not empty or cannot be written.
    """
    if any(images.marks is not None for images in splits.values()):
        raise DataError(
            f"data prepare: {splits['train'].name} has any number of labels an image, and a Parquet set one; read it "
            "from where it lies"
        )
    if is_address(str(folder)):
        _prepare_in_store(splits, Location(str(folder), "--to"), shards, progress)
        return
    target = expanded(str(folder)).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"--to: there is something already, got {target}; give a folder that is new or empty")
    atomic.remove_leftovers(target.parent, glob.escape(target.name))  # of a command that was killed
    try:
        with atomic.new_folder(target) as aside:
            for split, images in splits.items():
                count = _write_split(images, aside / split, shards)
                progress(f"{split}: {len(images):,} images in {count} files")
            _write_json(aside / DESCRIPTION, _description(splits))
            _write_json(aside / CHECKSUMS, _checksums(aside))
    except OSError as error:
        raise DataError(f"--to: cannot write {target}, got {error.strerror or error}; give another folder") from error


def _prepare_in_store(
    splits: dict[Split, ImageSet], place: Location, shards: int, progress: Callable[[str], None]
) -> None:
    """Write a dataset to a folder for the moment and copy it into an object store, where nothing can be renamed.

    The list of shards goes first: whoever reads a copy that was broken off is told which shard is missing.
    """
    place.require_empty()
    with tempfile.TemporaryDirectory(prefix="ebclab-") as aside:
        prepare_dataset(splits, Path(aside) / "set", shards=shards, progress=progress)
        files = sorted((path for path in Path(aside, "set").rglob("*") if path.is_file()), key=_list_first)
        for path in files:
            place.upload(path, path.relative_to(Path(aside, "set")).as_posix())


def _list_first(path: Path) -> tuple[bool, bool, str]:
    return path.name != CHECKSUMS, path.suffix == ".parquet", path.as_posix()


def shard_count(images: int, image_bytes: int, asked: int = 0) -> int:
    """Return in how many files a split is stored.

    Args:
        images: Images of the split.
        image_bytes: Bytes of one.
        asked: The user's choice; 0 leaves it to the sizes.
    """
    groups = math.ceil(images / group_rows(image_bytes))
    return min(asked or max(_FEWEST_SHARDS, math.ceil(images * image_bytes / _SHARD_BYTES)), max(1, groups))


def group_rows(image_bytes: int) -> int:
    """Return the rows of a row group."""
    return max(1, min(_GROUP_ROWS, _GROUP_BYTES // image_bytes))


def _write_split(images: ImageSet, folder: Path, asked: int) -> int:
    folder.mkdir(parents=True)
    image_bytes = math.prod(images.images.shape[1:])
    count = shard_count(len(images), image_bytes, asked)
    order = torch.argsort(hash_words(_ORDER_SALT, images.keys), stable=True)
    for number, rows in enumerate(order.tensor_split(count)):
        part = images.rows(rows)
        table = pa.table(
            {
                "image": pa.FixedShapeTensorArray.from_numpy_ndarray(part.images.numpy()),
                "label": part.labels.numpy(),
                INDEX_COLUMN: part.keys.numpy(),
            }
        )
        path = folder / f"part-{number:05d}-of-{count:05d}.parquet"
        with path.open("wb") as file:
            pq.write_table(
                table, file, row_group_size=group_rows(image_bytes), compression="zstd", write_page_checksum=True
            )
    return count


def _description(splits: dict[Split, ImageSet]) -> dict[str, Any]:
    train = splits["train"]
    return {
        "format": FORMAT,
        "name": train.name,
        "class_names": list(train.class_names),
        "mean": list(train.mean),
        "std": list(train.std),
        "shape": list(train.images.shape[1:]),
        "num_images": {split: len(images) for split, images in splits.items()},
        "schema": {"image": "fixed_shape_tensor<uint8>[C, H, W]", "label": "int64", INDEX_COLUMN: "int64"},
    }


def _checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of every shard, by path within ``folder``."""
    sums = {}
    for path in sorted(folder.rglob("*.parquet")):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        sums[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    return sums


def _write_json(path: Path, value: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
