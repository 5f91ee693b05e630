"""Writes any dataset as Parquet that Ray Data, Arrow and others can stream: shards, a description and checksums.

A preparation is in progress in a hidden folder beside its target, from which a killed one continues:

.<name>.unfinished/
  plan.json     everything that the content of the shards depends on
  records/      one for each finished shard, written after it
  written/      files in progress
  set/          finished shards; becomes the target
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from ebclab.config.addresses import expanded, is_address
from ebclab.config.sections import DataConfig
from ebclab.data.hashing import hash_words
from ebclab.data.holdout import limit, limited
from ebclab.data.image_set import ImageSet, content_digest, short_digest
from ebclab.data.photograph import Decoded, Example, LeftOut, Reading
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.columns import INDEX_COLUMN
from ebclab.data.sources.image_source import (
    ImageSource,
    RowIndex,
    Statistics,
    by_kind,
    lines_of,
    read_rows,
    training_statistics,
)
from ebclab.data.sources.load import load_split, open_source
from ebclab.data.sources.location import location_of
from ebclab.data.sources.parquet import CHECKSUMS, DESCRIPTION, LEFT_OUT
from ebclab.errors import DataError, UserError
from ebclab.formatting import count
from ebclab.hardware import free_bytes, usable_processors
from ebclab.storage import atomic
from ebclab.storage.filesystem import Location
from ebclab.storage.lock import locked, require_creatable
from ebclab.storage.reading import read_json, read_typed

FORMAT = 1

_HELD_SHARE = 0.25  # of the memory that is free, for each split
_GROUP_ROWS = 1024  # a row group is the least that is read at once: small, so that a block mixes several
_GROUP_BYTES = 8 << 20  # the same for large images
_SHARD_BYTES = 128 << 20  # object stores read files of this size at full speed
_FEWEST_SHARDS = 8  # tools that share out whole files feed up to as many readers
_ORDER_SALT = 0x7368617264  # names this use of the keys


# The rows of a split, from memory or from where they are
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


# Shards
@dataclass(frozen=True)
class Storage:
    """How images are stored."""

    form: str = "pixels"  # or jpeg, which takes a tenth of the space and must be decoded again
    quality: int = 90  # of JPEG files, 1 to 100; colours keep their resolution (4:4:4)

    def __post_init__(self) -> None:
        if self.form not in ("pixels", "jpeg"):
            raise UserError(f"--store: must be pixels or jpeg, got {self.form}")

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


PIXELS = Storage()


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


# The folder of a preparation
@dataclass(frozen=True)
class _ShardRecord:
    bytes: int  # size of its file
    sha256: str  # of its file
    images: int
    left_out: tuple[LeftOut, ...]  # images that could not be read


class _UnfinishedSet:
    """The hidden folder in which the dataset at ``target`` is prepared."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(f".{target.name}.unfinished")
        self.set = self.folder / "set"
        self._records = self.folder / "records"
        self._written = self.folder / "written"
        self._remedy = f"delete {self.folder} and begin again"

    @contextmanager
    def claimed(self, plan: dict[str, object], splits: Iterable[str]) -> Iterator[None]:
        """Claim the folder for this process and a plan of splits; if no shard was finished, remove it at the end."""
        self.require_free_target()
        with locked(self.folder, busy="prepares this set", option="--to"):
            try:
                self.require_free_target()
                self._adopt(plan, splits)
                yield
            finally:
                if not self.set.exists() or not self.num_finished:
                    shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def num_finished(self) -> int:
        return sum(1 for _ in self._records.glob("*.json"))

    def statistics(self, compute: Callable[[], Statistics]) -> Statistics:
        """Return channel statistics, which are computed once and kept for later processes."""
        path = self.folder / "statistics.json"
        if not path.exists():
            atomic.write_json(path, asdict(compute()))
        return read_typed(path, Statistics, remedy=self._remedy)

    def record(self, shard: str) -> _ShardRecord | None:
        """Return the record of a shard, named by its path within the dataset, or None if it is not finished."""
        path = self._record_of(shard)
        if not path.exists():
            return None
        record = read_typed(path, _ShardRecord, remedy=self._remedy)
        file = self.set / shard
        if not file.is_file() or file.stat().st_size != record.bytes:
            raise DataError(f"{file}: not as it was finished; {self._remedy}")
        return record

    def finish(self, shard: str, write: Callable[[Path], tuple[int, list[LeftOut]]]) -> _ShardRecord:
        """Write a shard in ``written/``, move it to its place and record it; return the record."""
        aside = self._written / shard.replace("/", "-")
        images, left_out = write(aside)
        with aside.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        record = _ShardRecord(aside.stat().st_size, digest, images, tuple(left_out))
        place = self.set / shard
        aside.rename(place)
        atomic.sync_path(place.parent)
        atomic.write_json(self._record_of(shard), asdict(record))
        return record

    def add(self, name: str, text: str) -> None:
        aside = self._written / name
        atomic.write_text(aside, text)
        aside.replace(self.set / name)

    def publish(self) -> None:
        """Move the dataset to the target, and remove the files that were only needed to continue."""
        for path in (*self.set.iterdir(), self.set):
            atomic.sync_path(path)
        self.set.rename(self.target)
        atomic.sync_path(self.target.parent)

    def _adopt(self, plan: dict[str, object], splits: Iterable[str]) -> None:
        """Start, or continue with finished shards of the same plan."""
        path = self.folder / "plan.json"
        if path.exists():
            before = read_json(path, remedy=self._remedy, error=DataError)
            if before != plan:
                raise DataError(
                    f"--to: {self.folder} holds a part of another set, got {_difference(before, plan)}; repeat "
                    "with what it began with, or delete it"
                )
        else:
            atomic.write_json(path, plan)
        for split in splits:
            atomic.make_folder(self.set / split)
        atomic.make_folder(self._records)
        atomic.make_folder(self._written)

    def require_free_target(self) -> None:
        if self.target.exists() and (not self.target.is_dir() or any(self.target.iterdir())):
            if not self.set.exists():  # killed after the move: the target is this dataset
                shutil.rmtree(self.folder, ignore_errors=True)
            raise DataError(f"--to: there is something already, got {self.target}; give a folder that is new or empty")

    def _record_of(self, shard: str) -> Path:
        return self._records / f"{shard.replace('/', '-')}.json"


def _difference(before: object, now: dict[str, object]) -> str:
    """Return the first setting in which two plans differ, in words."""
    if not isinstance(before, dict):
        return "no plan"
    for key, value in now.items():
        old = before.get(key)
        if old != value:
            if isinstance(old, dict) and isinstance(value, dict):
                return f"{key}: {_difference(old, value)}"
            if key in ("files", "index"):
                return f"other {key} now: files were added, replaced or removed"
            return f"{key} {old} before and {value} now"
    return "more settings before"


class _Piece(NamedTuple):
    path: str  # within the dataset
    split: Split
    rows: Tensor  # of the split


def require_target(folder: str | Path) -> None:
    """Refuse a folder, or an address, to which no dataset can be written, before any images are read."""
    if is_address(str(folder)):
        Location(str(folder), "--to").require_empty()
        return
    unfinished = _UnfinishedSet(expanded(str(folder)).absolute())
    unfinished.require_free_target()
    require_creatable(unfinished.folder, "--to")


def prepare_dataset(
    splits: Mapping[Split, ImageSet | SplitRows],
    folder: str | Path,
    *,
    shards: int = 0,
    storage: Storage = PIXELS,
    progress: Callable[[str], None] = print,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write a dataset to ``folder`` as Parquet shards; a local folder appears complete or not at all.

    Rows are in the order of a hash of their keys, so that shards are shuffled. Each split is a sub-folder of shards
    with the columns ``image`` (fixed-shape tensor (C, H, W) of unsigned bytes, or a JPEG
    file), ``label`` and ``index`` (the sample key). As many shards as there are processors are written at a time, a
    row group of each in memory. A killed preparation keeps its finished shards in a hidden folder beside ``folder``;
    when it is continued, the result is the same, byte for byte.

    Args:
        splits: The images of each split; "train" must be among them.
        folder: A folder that does not exist, or is empty; or the address of one in an object store.
        shards: Files of each split; 0 means one for each 128 MB of images, at least eight, but none below one row
            group of 1,024 rows or 8 MB.
        progress: Called with a line about each split, and one about images that were left out.
        on_progress: Called with the number of images written and of all images, at the start and during the work.
    """
    rows = {name: SplitRows.of(split) if isinstance(split, ImageSet) else split for name, split in splits.items()}
    if any(split.index.marks is not None for split in rows.values()):
        raise DataError(
            f"data prepare: {rows['train'].source.name} has any number of labels an image, and a Parquet set one; read "
            "it from where it is"
        )
    channels = rows["train"].source.example.shape[0]
    if storage.form == "jpeg" and channels not in (1, 3):
        raise DataError(f"--store: a JPEG file has one channel or three, got images of {channels}; store pixels")
    if not is_address(str(folder)):
        _Preparation(rows, expanded(str(folder)).absolute(), shards, storage, progress, on_progress).run()
        return
    place = Location(str(folder), "--to")
    place.require_empty()
    with tempfile.TemporaryDirectory(prefix="ebclab-") as aside:
        _Preparation(rows, Path(aside, "set"), shards, storage, progress, on_progress).run()
        _upload(Path(aside, "set"), place)


@dataclass
class _Preparation:
    """One preparation; the arguments are those of ``prepare_dataset``."""

    splits: dict[Split, SplitRows]
    target: Path
    shards: int
    storage: Storage
    progress: Callable[[str], None]
    on_progress: Callable[[int, int], None]
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.unfinished = _UnfinishedSet(self.target)
        self.total = sum(len(split.index) for split in self.splits.values())
        self.counts = {
            name: shard_count(len(each.index), each.source.image_bytes, self.shards)
            for name, each in self.splits.items()
        }

    def run(self) -> None:
        """Write the missing shards, then the files that describe them, and move the dataset to its target."""
        shards = [
            _Piece(f"{name}/part-{number:05d}-of-{count:05d}.parquet", name, rows)
            for name, count in self.counts.items()
            for number, rows in enumerate(rows_of_shards(self.splits[name], count))
        ]
        unfinished = self.unfinished
        try:
            with unfinished.claimed(self._plan(), self.splits):
                records = {shard.path: record for shard in shards if (record := unfinished.record(shard.path))}
                self._count(sum(len(shard.rows) for shard in shards if shard.path in records))
                statistics = unfinished.statistics(self.splits["train"].statistics)
                records |= self._write([shard for shard in shards if shard.path not in records])
                self._describe(shards, records, statistics)
                unfinished.publish()
        except OSError as error:
            reason, target = error.strerror or error, unfinished.target
            raise DataError(f"--to: cannot write {target}, got {reason}; give another folder") from error

    def _plan(self) -> dict[str, object]:
        """Return all that the bytes of the shards depend on, as JSON holds it."""
        train = self.splits["train"].source
        reading = asdict(replace(train.reading, skip_corrupt=False))  # sound images are the same with and without
        plan = {
            "format": FORMAT,
            "name": train.name,
            "shape": train.example.shape,
            "reading": reading,
            "storage": asdict(self.storage),
            "shards": self.counts,
            "splits": {
                name: {
                    "images": len(split.index),
                    "index": short_digest(split.index.keys, split.index.labels),
                    "files": split.source.files_digest,
                }
                for name, split in self.splits.items()
            },
            "written with": {name: version(name) for name in ("pillow", "pyarrow")},
        }
        return json.loads(json.dumps(plan))  # type: ignore[no-any-return]

    def _write(self, shards: list[_Piece]) -> dict[str, _ShardRecord]:
        """Write shards, several at a time; after an error those that are begun stop after their row group."""
        processors = usable_processors()
        threads = max(1, processors // max(1, len(shards)))

        def write(shard: _Piece) -> _ShardRecord:
            split = self.splits[shard.split]
            return self.unfinished.finish(
                shard.path,
                lambda path: write_shard(path, split, shard.rows, self.storage, threads=threads, done=self._count),
            )

        with ThreadPoolExecutor(processors) as pool:
            work = {pool.submit(write, shard): shard for shard in shards}
            try:
                return {work[piece].path: piece.result() for piece in as_completed(work)}
            except BaseException:
                self.stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                if count := self.unfinished.num_finished:
                    self.progress(f"stopped: {count} finished files are kept, and the same command resumes from them")
                raise

    def _count(self, images: int) -> None:
        if self.stopped.is_set():
            raise InterruptedError("another shard failed")
        with self.lock:
            self.done += images
            self.on_progress(self.done, self.total)

    def _describe(self, shards: list[_Piece], records: dict[str, _ShardRecord], statistics: Statistics) -> None:
        """Write the facts about the shards beside them, and report them."""
        train = self.splits["train"].source
        counts = {
            name: sum(records[shard.path].images for shard in shards if shard.split == name) for name in self.splits
        }
        left_out = [(shard.split, image) for shard in shards for image in records[shard.path].left_out]
        kinds = by_kind([image for _, image in left_out])
        if not counts["train"]:
            raise DataError(f"data prepare: no image is left, got {kinds}; replace the files")
        classes = count(len(train.class_names), "class", "classes") if train.class_names else "no names of classes"
        for name, images in counts.items():
            self.progress(f"{name}: {count(images, 'image')}, {classes}, in {count(self.counts[name], 'file')}")
        if left_out:
            self.unfinished.add(LEFT_OUT, lines_of({"split": split} | asdict(image) for split, image in left_out))
            self.progress(
                f"left out {len(left_out):,} of {self.total:,} images: {kinds}; {LEFT_OUT} in the set names them"
            )
        stored = "fixed_shape_tensor<uint8>[C, H, W]"
        if self.storage.form == "jpeg":
            stored = f"JPEG of quality {self.storage.quality}"
        description = {
            "format": FORMAT,
            "name": train.name,
            "class_names": list(train.class_names),
            "mean": list(statistics.mean),
            "std": list(statistics.std),
            "shape": list(train.example.shape),
            "num_images": counts,
            "schema": {"image": stored, "label": "int64", INDEX_COLUMN: "int64"},
        }
        sums = {path: {"bytes": record.bytes, "sha256": record.sha256} for path, record in sorted(records.items())}
        for file, facts in ((DESCRIPTION, description), (CHECKSUMS, sums)):
            self.unfinished.add(file, json.dumps(facts, indent=2) + "\n")


def _upload(folder: Path, place: Location) -> None:
    """Copy a set into an object store, where nothing can be renamed.

    The list of shards goes first: reading an incomplete copy then says which shard is missing.
    """

    def order(path: Path) -> tuple[bool, bool, str]:
        return path.name != CHECKSUMS, path.suffix == ".parquet", path.as_posix()

    for path in sorted((path for path in folder.rglob("*") if path.is_file()), key=order):
        place.upload(path, path.relative_to(folder).as_posix())
