"""Datasets that can be read in parts: keys and labels of all rows are known before any image is decoded.

Shapes: n rows of the source, k rows that are read, C channels, H x W pixels.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words
from ebclab.data.image_set import ImageSet, level_counts, statistics_of_counts
from ebclab.data.photograph import DAMAGE, size_in_header
from ebclab.data.sources.decode import Decoded, Example, LeftOut, Reading, decode_images
from ebclab.errors import DataError
from ebclab.hardware import usable_processors
from ebclab.storage import atomic
from ebclab.storage.filesystem import Location

STATISTICS_LIMIT = 4096
"""Number of images, chosen by hash, for channel statistics of a source that does not store them."""

_STATISTICS_SALT = 0x7374617473  # names this use of the keys
_NAMES_SHOWN = 5
_PART_BYTES = 64 << 20  # of decoded images whose levels are counted at a time

_log = logging.getLogger("ebclab.data")


@dataclass(frozen=True)
class RowIndex:
    """All rows of a source, in its order.

    Attributes:
        keys: (n,) int64 sample keys.
        labels: (n,) int64; -1 where unknown.
        groups: (n,) int64, never decreasing; the group of rows that are read together.
        places: (n,) int64; position of each row within its group.
        marks: (n, K) int8 for images that may have several labels, as in ``ImageSet``; else None.
    """

    keys: Tensor
    labels: Tensor
    groups: Tensor
    places: Tensor
    marks: Tensor | None = None

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


class ImageSource(Protocol):
    """One split of a dataset in files; several threads may read it at once.

    Attributes:
        name: Dataset name.
        class_names: Names of the classes, by label; empty when unknown.
        reading: How images are read.
        example: One of its images; all have its shape.
        index: Its rows.
        statistics: Statistics that are stored with the set, or None.
        files_digest: Digest of its files' names with their recorded SHA-256 sums, else with their sizes.
    """

    name: str
    class_names: tuple[str, ...]
    reading: Reading
    example: Example
    index: RowIndex
    statistics: Statistics | None
    files_digest: str

    def read(self, group: int, places: Tensor) -> Decoded: ...


class ImageFiles:
    """Part of an ``ImageSource`` with one file an image and one image a group.

    Attributes:
        reading: How images are read.
        example: One of the images; all have its shape.
    """

    reading: Reading
    example: Example
    _place: Location
    _files: list[str]

    def read(self, group: int, places: Tensor) -> Decoded:
        """Return the image of file number ``group``, once for each of ``places``."""
        return decode_images(self._contents([group] * len(places)), self.reading, self.example)

    def sizes(self, rows: Tensor) -> list[tuple[int, int]]:
        """Return width and height of the images of some rows, pixels, leaving out those with unreadable headers."""
        found = []
        for number in rows.tolist():
            path = self._place.inner_path(self._files[number])
            with suppress(*DAMAGE), self._place.filesystem.open_input_file(path) as file:
                found.append(size_in_header(file))
        return found

    def _contents(self, numbers: Iterable[int]) -> Iterator[tuple[str, bytes]]:
        for number in numbers:
            file = self._files[number]
            yield f"{self._place.path}/{file}", self._place.read(file)


def read_rows(source: ImageSource, index: RowIndex, threads: int = 1) -> Decoded:
    """Return the images of some rows, in the order of ``index``; each group is read once.

    Args:
        index: The rows, in any order.
        threads: Number of groups that are read at a time.
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
            _finish(pool, [pool.submit(read, rows) for rows in parts])
    return Decoded(images if bool(good.all()) else images[good], good, [left_out[row] for row in sorted(left_out)])


def _finish(pool: ThreadPoolExecutor, work: list[Future[None]]) -> None:
    """Wait for all pieces of work; if one fails, cancel those that have not started."""
    try:
        for piece in work:
            piece.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def load_images(source: ImageSource, index: RowIndex, statistics: Statistics) -> ImageSet:
    """Return some rows of ``source`` as a set in memory, without damaged images if the source may skip them."""
    decoded = read_rows(source, index, threads=usable_processors())
    report_skipped(decoded.left_out, len(index))
    kept = index.at(decoded.good)
    names, mean, std = source.class_names, statistics.mean, statistics.std
    return ImageSet(source.name, decoded.images, kept.labels, kept.keys, names, mean, std, kept.marks)


def training_statistics(training: ImageSource) -> Statistics:
    """Return the statistics stored with a training split, or else those of its ``statistics_rows``."""
    if training.statistics is not None:
        return training.statistics
    chosen = training.index.at(statistics_rows(training.index.keys))
    counts = torch.zeros(training.example.shape[0], 256, dtype=torch.int64)
    for part in torch.split(torch.arange(len(chosen)), max(1, _PART_BYTES // math.prod(training.example.shape))):
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


def _list_of(left_out: list[LeftOut]) -> str:
    """Write one line of JSON for each image into the folder for temporary files, and return in words which file."""
    lines = "".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in left_out)
    name = hashlib.sha256(lines.encode()).hexdigest()[:12]  # the same list gets the same file
    path = Path(tempfile.gettempdir(), f"ebclab-left-out-{name}.jsonl")
    if not path.is_file():  # in a shared folder, only the owner may replace it
        try:
            atomic.write_text(path, lines)
        except OSError as error:
            return f"the others are not named, {path} cannot be written: {error.strerror or error}"
    return f"all are named in {path}"
