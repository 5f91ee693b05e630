"""Datasets that can be read in parts: keys and labels of all rows are known before any image is decoded.

Shapes: n rows of the source in G groups, k rows that are read, C channels, H x W pixels.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words
from ebclab.data.image_set import ImageSet, digest_of_files, level_counts, statistics_of_counts
from ebclab.data.photograph import (
    DAMAGE,
    Decoded,
    Example,
    LeftOut,
    Reading,
    decode_images,
    first_example,
    seeming,
    size_in_header,
    sizes_in_headers,
)
from ebclab.data.sources.location import hash_of_path
from ebclab.errors import DataError
from ebclab.hardware import usable_processors
from ebclab.storage import atomic
from ebclab.storage.filesystem import Location, first_line

STATISTICS_LIMIT = 4096
"""Number of images, chosen by hash, for channel statistics of a source that does not store them."""

_STATISTICS_SALT = 0x7374617473  # names this use of the keys
_NAMES_SHOWN = 5
_BEGINNING = 128  # bytes that tell what a file is
_PART_BYTES = 64 << 20  # of decoded images whose levels are counted at a time

_log = logging.getLogger("ebclab.data")


@dataclass(frozen=True)
class RowIndex:
    """All rows of a source, in its order."""

    keys: Tensor  # (n,) int64 sample keys
    labels: Tensor  # (n,) int64; -1 where unknown
    groups: Tensor  # (n,) int64, never decreasing; the group of rows that are read together
    places: Tensor  # (n,) int64; position of each row within its group
    marks: Tensor | None = None  # (n, K) int8 for images that may have several labels, as in ``ImageSet``

    @classmethod
    def grouped(
        cls, keys: Tensor, labels: Tensor, counts: Tensor | None = None, marks: Tensor | None = None
    ) -> RowIndex:
        """Return the index of groups with ``counts`` (G,) rows each; None: every row is a group."""
        rows = torch.arange(len(keys))
        if counts is None:
            return cls(keys, labels, rows, torch.zeros_like(rows), marks)
        groups = torch.repeat_interleave(torch.arange(len(counts)), counts)
        return cls(keys, labels, groups, rows - (counts.cumsum(0) - counts)[groups], marks)

    def __len__(self) -> int:
        return len(self.keys)

    def at(self, rows: Tensor) -> RowIndex:
        """Return the index restricted to ``rows``, (k,) int64 or (n,) bool."""
        marks = None if self.marks is None else self.marks[rows]
        return RowIndex(self.keys[rows], self.labels[rows], self.groups[rows], self.places[rows], marks)


@dataclass(frozen=True)
class Statistics:
    """Channel means and standard deviations of a training split, in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class ImageSource(ABC):
    """One split of a dataset; several threads may read it at once. A kind of source sets the fields."""

    name: str
    reading: Reading
    index: RowIndex
    example: Example  # all images have its shape
    files_digest: str  # of the files' names with their recorded SHA-256 sums, else with their sizes
    class_names: tuple[str, ...] = ()  # by label; empty where unknown
    statistics: Statistics | None = None  # those that are stored with the set

    @property
    def image_bytes(self) -> int:
        return math.prod(self.example.shape)

    @abstractmethod
    def read(self, group: int, places: Tensor) -> Decoded:
        """Return the images at ``places`` of a group."""

    def sizes(self, rows: Tensor) -> list[tuple[int, int]]:
        """Return width and height of about as many images as ``rows``, without decoding them.

        Leaves out images whose header cannot be read; empty where images are stored as pixels, which have one shape.
        """
        return []


class EncodedSource(ImageSource):
    """One split of a dataset of image files, or of columns of such."""

    groups_measured: ClassVar[int | None] = None  # most groups whose images are read for their sizes
    _place: Location

    @abstractmethod
    def encoded(self, group: int, places: Sequence[int]) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the images at some places of a group."""

    def read(self, group: int, places: Tensor) -> Decoded:
        return decode_images(self.encoded(group, places.tolist()), self.reading, self.example)

    def sizes(self, rows: Tensor) -> list[tuple[int, int]]:
        groups = list(dict.fromkeys(self.index.groups[rows].tolist()))[: self.groups_measured]
        return list(islice(sizes_in_headers(content for _, content in self._all_of(groups)), len(rows)))

    def _first_example(self) -> Example:
        groups = torch.unique_consecutive(self.index.groups).tolist()
        return first_example(self._all_of(groups), self.reading, self._place.path)

    def _all_of(self, groups: Iterable[int]) -> Iterator[tuple[str, bytes]]:
        for group in groups:
            first, end = torch.searchsorted(self.index.groups, torch.tensor([group, group + 1])).tolist()
            yield from self.encoded(group, range(end - first))

    def _where(self, file: str) -> str:
        return f"{self._place.path}/{file}" if file else self._place.path

    @contextmanager
    def _reading_of(self, file: str, form: str) -> Iterator[None]:
        """Make errors of a file into a DataError: of its storage, or that it is not a readable ``form``."""
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException, ValueError) as error:
            if (of_storage := self._place.storage_error(error, file)) is not None:
                raise of_storage from error
            reason = first_line(error)
            with suppress(OSError), self._place.filesystem.open_input_file(self._place.inner_path(file)) as opened:
                reason = seeming(opened.read(_BEGINNING)) or reason
            raise DataError(
                f"{self._where(file)}: not a readable {form}, got {reason}; replace it with a good copy"
            ) from error


@dataclass(frozen=True)
class Listing:
    """The images of a split of a set of image files."""

    sizes: Mapping[str, int]  # of the files in bytes, by path below the dataset's place
    names: Sequence[str]  # of the images, independent of their folder; the key is the hash of the name
    labels: Sequence[int] | Tensor
    class_names: tuple[str, ...]
    marks: Tensor | None = None  # (n, K) int8 for images that may have several labels


class ImageFiles(EncodedSource):
    """One split of a set with one file an image."""

    def __init__(self, name: str, place: Location, split: str, reading: Reading, listing: Listing) -> None:
        self.name, self.reading, self._place = name, reading, place
        self._files, self.class_names = list(listing.sizes), listing.class_names
        if not self._files:
            raise DataError(f"data.name: {name} has no {split} images, got none in {place.path}; unpack it again")
        self.files_digest = digest_of_files(listing.sizes)
        keys = torch.tensor([hash_of_path(each) for each in listing.names])
        if len(torch.unique(keys)) < len(keys):
            twice = Counter(listing.names).most_common(1)[0][0]
            raise DataError(f"data.name: {name} has two {split} images called {twice}; unpack it again")
        self.index = RowIndex.grouped(keys, torch.as_tensor(listing.labels), marks=listing.marks)
        self.example = self._first_example()

    def encoded(self, group: int, places: Sequence[int]) -> Iterator[tuple[str, bytes]]:
        for _ in places:
            yield self._where(self._files[group]), self._place.read(self._files[group])

    def sizes(self, rows: Tensor) -> list[tuple[int, int]]:  # reads no more of a file than its header
        measured = []
        for number in rows.tolist():
            path = self._place.inner_path(self._files[number])
            with suppress(*DAMAGE), self._place.filesystem.open_input_file(path) as file:
                measured.append(size_in_header(file))
        return measured


def read_rows(source: ImageSource, index: RowIndex, threads: int = 1) -> Decoded:
    """Return the images of some rows, in the order of ``index``, which may be any.

    Each group is read once, ``threads`` of them at a time.
    """
    images = torch.empty(len(index), *source.example.shape, dtype=torch.uint8)
    good = torch.zeros(len(index), dtype=torch.bool)
    left_out: dict[int, LeftOut] = {}
    order = torch.argsort(index.groups, stable=True)
    parts = torch.split(order, torch.unique(index.groups, return_counts=True)[1].tolist())

    def read(rows: Tensor) -> None:
        part = source.read(int(index.groups[rows[0]]), index.places[rows])
        images[rows[part.good]] = part.images
        good[rows] = part.good
        left_out.update(zip(rows[~part.good].tolist(), part.left_out, strict=True))

    if threads == 1 or len(parts) < 2:
        for rows in parts:
            read(rows)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(read, parts))  # after an error, parts that have not begun are cancelled
    return Decoded(images if bool(good.all()) else images[good], good, [left_out[row] for row in sorted(left_out)])


def load_images(source: ImageSource, index: RowIndex, statistics: Statistics) -> ImageSet:
    """Return some rows of ``source`` as a set in memory, without damaged images if the source may skip them."""
    decoded = read_rows(source, index, threads=usable_processors())
    report_skipped(decoded.left_out, len(index))
    return set_of_rows(source, index.at(decoded.good), decoded.images, statistics)


def set_of_rows(source: ImageSource, index: RowIndex, images: Tensor, statistics: Statistics) -> ImageSet:
    """Return rows of ``source`` with their images (k, C, H, W) as a set in memory."""
    names, mean, std = source.class_names, statistics.mean, statistics.std
    return ImageSet(source.name, images, index.labels, index.keys, names, mean, std, index.marks)


def training_statistics(training: ImageSource) -> Statistics:
    """Return the statistics stored with a training split, or else those of its ``statistics_rows``."""
    if training.statistics is not None:
        return training.statistics
    chosen = training.index.at(statistics_rows(training.index.keys))
    counts = torch.zeros(training.example.shape[0], 256, dtype=torch.int64)
    for part in torch.split(torch.arange(len(chosen)), max(1, _PART_BYTES // training.image_bytes)):
        counts += level_counts(read_rows(training, chosen.at(part), threads=usable_processors()).images)
    return Statistics(*statistics_of_counts(counts))


def statistics_rows(keys: Tensor) -> Tensor:
    """Return the rows, at most STATISTICS_LIMIT and chosen by hash, that statistics are computed from."""
    return torch.argsort(hash_words(_STATISTICS_SALT, keys), stable=True)[:STATISTICS_LIMIT]


def report_skipped(left_out: list[LeftOut], count: int) -> None:
    """Log how many of ``count`` images were left out, by kind of damage, with the first few; a file lists all."""
    if not left_out:
        return
    shown = "; ".join(map(str, left_out[:_NAMES_SHOWN]))
    if len(left_out) > _NAMES_SHOWN:
        shown += f"; {_list_of(left_out)}"
    if len(left_out) == count:
        raise DataError(f"data.skip_corrupt: no image is left, got {count} damaged ones: {shown}; replace the files")
    _log.warning("%d of %d images left out (%s): %s", len(left_out), count, by_kind(left_out), shown)


def by_kind(left_out: list[LeftOut]) -> str:
    """Return how many images were left out for each kind of damage, most first, in words."""
    return ", ".join(f"{times:,} {kind}" for kind, times in Counter(each.kind for each in left_out).most_common())


def lines_of(entries: Iterable[object]) -> str:
    """Return a line of JSON for each entry, as a list of images that were left out has them."""
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in entries)


def _list_of(left_out: list[LeftOut]) -> str:
    """Write the list of images into the folder for temporary files, and return in words which file."""
    lines = lines_of(map(asdict, left_out))
    name = hashlib.sha256(lines.encode()).hexdigest()[:12]  # the same list gets the same file
    path = Path(tempfile.gettempdir(), f"ebclab-left-out-{name}.jsonl")
    if not path.is_file():  # in a shared folder, only the owner may replace it
        try:
            atomic.write_text(path, lines)
        except OSError as error:
            return f"the others are not named, {path} cannot be written: {error.strerror or error}"
    return f"all are named in {path}"
