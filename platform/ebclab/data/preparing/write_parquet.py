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
import json
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

from torch import Tensor

from ebclab.config.addresses import expanded, is_address
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import LeftOut
from ebclab.data.preparing.shards import SplitRows, Storage, rows_of_shards, shard_count, write_shard
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.columns import INDEX_COLUMN
from ebclab.data.sources.image_source import Statistics, by_kind, lines_of
from ebclab.data.sources.parquet import CHECKSUMS, DESCRIPTION
from ebclab.errors import DataError
from ebclab.formatting import count
from ebclab.hardware import usable_processors
from ebclab.storage import atomic
from ebclab.storage.filesystem import Location
from ebclab.storage.lock import locked, require_creatable
from ebclab.storage.reading import read_json, read_typed

FORMAT = 1

LEFT_OUT = "left_out.jsonl"
"""File of a prepared dataset that names the images that were left out, if there are any."""

PIXELS = Storage()


@dataclass(frozen=True)
class _ShardRecord:
    """Record of a finished shard."""

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
        """Write a text file beside the shards."""
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
    """A shard to write."""

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
        try:
            self._run()
        except OSError as error:
            reason, target = error.strerror or error, self.unfinished.target
            raise DataError(f"--to: cannot write {target}, got {reason}; give another folder") from error

    def _run(self) -> None:
        shards = [
            _Piece(f"{name}/part-{number:05d}-of-{count:05d}.parquet", name, rows)
            for name, count in self.counts.items()
            for number, rows in enumerate(rows_of_shards(self.splits[name], count))
        ]
        unfinished = self.unfinished
        with unfinished.claimed(self._plan(), self.splits):
            records = {shard.path: record for shard in shards if (record := unfinished.record(shard.path))}
            self._count(sum(len(shard.rows) for shard in shards if shard.path in records))
            statistics = unfinished.statistics(self.splits["train"].statistics)
            records |= self._write([shard for shard in shards if shard.path not in records])
            self._describe(shards, records, statistics)
            unfinished.publish()

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
            "splits": {name: split.facts() for name, split in self.splits.items()},
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
        self.unfinished.add(DESCRIPTION, json.dumps(self._description(counts, statistics), indent=2) + "\n")
        sums = {path: {"bytes": record.bytes, "sha256": record.sha256} for path, record in sorted(records.items())}
        self.unfinished.add(CHECKSUMS, json.dumps(sums, indent=2) + "\n")

    def _description(self, counts: dict[Split, int], statistics: Statistics) -> dict[str, object]:
        train = self.splits["train"].source
        return {
            "format": FORMAT,
            "name": train.name,
            "class_names": list(train.class_names),
            "mean": list(statistics.mean),
            "std": list(statistics.std),
            "shape": list(train.example.shape),
            "num_images": counts,
            "schema": {"image": self.storage.in_words, "label": "int64", INDEX_COLUMN: "int64"},
        }


def _upload(folder: Path, place: Location) -> None:
    """Copy a set into an object store, where nothing can be renamed.

    The list of shards goes first: reading an incomplete copy then says which shard is missing.
    """

    def order(path: Path) -> tuple[bool, bool, str]:
        return path.name != CHECKSUMS, path.suffix == ".parquet", path.as_posix()

    for path in sorted((path for path in folder.rglob("*") if path.is_file()), key=order):
        place.upload(path, path.relative_to(folder).as_posix())
