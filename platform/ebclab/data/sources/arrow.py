"""Reads what ``save_to_disk`` of Hugging Face's datasets writes, and the cache of its ``load_dataset``, with pyarrow.

PATH/dataset_dict.json                    {"splits": ["train", "test"]}
PATH/train/state.json                     names the files
PATH/train/dataset_info.json              names the classes
PATH/train/data-00000-of-00002.arrow      Arrow in the stream format, an image as a struct of its bytes and its path

Where a single split was saved, PATH is its folder. A folder of the cache has all files of its splits:

PATH/dataset_info.json                    as above
PATH/mnist-train-00000-of-00002.arrow     a split's file; cache-70db.arrow and the like are results of ``map``

Files are mapped into memory, so that a record batch is found
without reading those before it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import torch

from ebclab.config.addresses import is_address
from ebclab.data.class_labels import Labels, joined
from ebclab.data.image_set import digest_of_files
from ebclab.data.photograph import Reading
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.columns import (
    FileIndex,
    TableSource,
    class_names_in,
    image_column_of,
    labels_of,
    names_of_feature,
)
from ebclab.data.sources.location import any_word, files_of_split, splits_among, tell_once, typed_file, word_for
from ebclab.errors import DataError, NoTestPartError
from ebclab.formatting import without_credentials
from ebclab.storage.filesystem import Location

_SPLITS, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_PART_OF_A_NAME = re.compile(r"(-\d{5}-of-\d{5})?\.arrow$")


@dataclass(frozen=True)
class _SavedSplits:
    """The content of dataset_dict.json."""

    splits: tuple[str, ...]


@dataclass(frozen=True)
class _DataFile:
    """An entry of state.json."""

    filename: str


@dataclass(frozen=True)
class _SavedFiles:
    """The content of state.json; fields begin with an underscore there."""

    data_files: tuple[_DataFile, ...]
    indices_data_files: tuple[_DataFile, ...] | None = None


@dataclass(frozen=True)
class _Info:
    """The part of dataset_info.json about the columns."""

    features: dict[str, object] = field(default_factory=dict)


class ArrowSource(TableSource):
    """One split of a saved or cached dataset, on a disk; a record batch is a group, the key is the row.

    The split "test" is the first of test, val, valid and validation.
    """

    form, group_name = "Arrow stream", "record batch"

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        self.name, self.reading = name, reading
        self._place = _place(path)
        cached = _cached_files(self._place)
        folder = "" if cached else _folder_of(self._place, split, name)
        chosen = files_of_split(cached, split, name, _cached_word) if cached else _data_files(self._place, folder)
        files = {file: self._place.size(file) for file in chosen}
        if lost := [file for file, size in files.items() if size is None]:
            raise DataError(f"{self._where(lost[0])}: there is no such file, and {_STATE} names it; copy the set again")
        if self._place.has(f"{folder}{_INFO}"):
            features = typed_file(self._place, f"{folder}{_INFO}", _Info).features
            self.class_names = names_of_feature(features, reading.label_column)
        self.files_digest = digest_of_files({file: str(size) for file, size in files.items()})
        self._set_index({file: self._read_file_index(file) for file in files})

    def _read_file_index(self, file: str) -> FileIndex:
        column, labels = "", [Labels(torch.empty(0, dtype=torch.int64))]
        for batch in self._read(file):
            column = image_column_of(self.name, self._where(file), batch.schema, self.reading)
            labels.append(self._labels(file, batch))
        return FileIndex(column, [len(each.numbers) for each in labels[1:]], joined(labels, self._where(file)))

    def _images(self, file: str, number: int) -> pa.Array:
        batch = next((batch for at, batch in enumerate(self._read(file)) if at == number), None)
        if batch is None:
            raise DataError(f"{self._where(file)}: has {number} record batches and had more; the file has changed")
        return self._column(file, batch, self.reading.image_column)

    def _column(self, file: str, batch: pa.RecordBatch, name: str) -> pa.Array:
        with self._reading_of(file, self.form):
            column = batch.column(name)
            column.validate(full=True)
            return column

    def _read(self, file: str) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a file, which are views of the mapped file."""
        inside = self._place.inner_path(file)
        with self._reading_of(file, self.form):
            state = os.stat(inside)
            _require_uncompressed(inside, state.st_size, state.st_mtime_ns)
            with pa.memory_map(inside) as mapped, pa.ipc.open_stream(mapped) as stream:
                _require_readable_names(stream.schema)
                yield from stream

    def _labels(self, file: str, batch: pa.RecordBatch) -> Labels:
        name = self.reading.label_column
        if name not in batch.schema.names:
            return Labels(torch.full((batch.num_rows,), -1))
        column = self._column(file, batch, name)
        with self._reading_of(file, self.form):
            names = self.class_names or class_names_in(batch.schema, name)
            return labels_of(pa.chunked_array([column]), names, f"column {name} of {self._where(file)}")


def arrow_splits(path: str) -> tuple[Split, ...]:
    """Return which splits ``save_to_disk`` wrote at ``path``."""
    place = _place(path)
    if cached := _cached_files(place):
        return splits_among(cached, _cached_word)
    if not place.has(_SPLITS):
        return ("train",)
    words = [split.lower() for split in typed_file(place, _SPLITS, _SavedSplits).splits]
    return ("train", "test") if word_for("test", words) else ("train",)


def _require_readable_names(schema: pa.Schema) -> None:
    """Decode every name of a schema, which Arrow does at first use: a ``ValueError`` where one is not UTF-8."""
    names = list(schema.names)
    types = [schema.field(place).type for place in range(len(names))]
    while types:
        fields = [kind.field(place) for kind in types for place in range(kind.num_fields)]
        names += [each.name for each in fields]
        types = [each.type for each in fields]


def _place(path: str) -> Location:
    if is_address(path):
        raise DataError(
            f"data.name: arrow: is read from a disk, got {without_credentials(path)}; copy it there, or run "
            "`ebclab data prepare` where it is and read that with parquet:"
        )
    return Location(path)


def _cached_files(place: Location) -> list[str]:
    """Return the files of a folder of the cache; empty if it was saved, or is neither."""
    if not place.has(_INFO) or place.has(_STATE) or place.has(_SPLITS):
        return []
    return [file for file in place.files((".arrow",)) if "/" not in file and not file.startswith("cache-")]


def _cached_word(file: str) -> str:
    """Return the word of a file of the cache that names its split, which follows the name of the dataset."""
    return any_word(_PART_OF_A_NAME.sub("", file).rpartition("-")[2])


def _folder_of(place: Location, split: Split, name: str) -> str:
    """Return the folder of a split, with a slash after it; empty where PATH is that folder."""
    if place.has(_SPLITS):
        splits = typed_file(place, _SPLITS, _SavedSplits).splits
        by_word = {each.lower(): each for each in splits}
        if not (word := word_for(split, by_word)):
            raise DataError(
                f"data.name: {name} has no {split} images, got splits {', '.join(splits)}; name one {split}"
            )
        parts = [by_word[one] for part in ("train", "test") if (one := word_for(part, by_word))]
        if rest := [each for each in splits if each not in parts]:
            tell_once(f"{name}: splits other than {' and '.join(parts)} were left out: {', '.join(rest)}")
        return f"{by_word[word]}/"
    if not place.has(_STATE):
        near = next((file for file in place.files((_STATE, _INFO)) if "/" in file), "").rpartition("/")[0]
        hint = f"did you mean arrow:{place.path}/{near}?" if near else "give the folder that save_to_disk wrote to"
        raise DataError(f"data.name: no saved dataset in {place.path}, got neither {_SPLITS} nor {_STATE}; {hint}")
    if split == "test":
        raise NoTestPartError(
            f"data.name: {name} has no test images, got a single split; save a DatasetDict with train and test"
        )
    return ""


def _data_files(place: Location, folder: str) -> list[str]:
    where = f"{place.path}/{folder}{_STATE}"
    state = typed_file(place, f"{folder}{_STATE}", _SavedFiles, "_")
    if state.indices_data_files:
        raise DataError(
            f"{where}: its rows are chosen by a list of numbers, which is not read; save the set "
            "again after flatten_indices()"
        )
    names = [file.filename for file in state.data_files]
    if odd := [name for name in names if "/" in name or "\\" in name or name in ("", ".", "..")]:
        raise DataError(f"{where}: names of files in its own folder are needed, got {odd[0]!r:.80}")
    if not names:
        raise DataError(f"{where}: names no files; save the set again")
    return [f"{folder}{name}" for name in names]


@lru_cache(maxsize=10_000)
def _require_uncompressed(path: str, size: int, changed: int) -> None:
    """Refuse compressed record batches, which could become any size in memory; the library writes none.

    Each record batch is found by reading its file from the beginning, so a file is looked through once, until its size
    or the time of its last change is another.
    """
    with pa.memory_map(path) as mapped:
        for number, message in enumerate(pa.ipc.MessageReader.open_stream(mapped)):
            if message.type != "schema" and _is_compressed(message.metadata.to_pybytes()):
                raise ValueError(
                    f"message {number} is compressed; save the set with `save_to_disk`, which compresses none"
                )


_HEADER_TYPE, _HEADER, _DICTIONARY, _DATA, _COMPRESSION = 1, 2, 2, 1, 3
"""Numbers of fields, and of the type DictionaryBatch, in https://github.com/apache/arrow/blob/main/format/Message.fbs."""


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a record batch or dictionary, a FlatBuffer, state a compression of its body."""

    def number(kind: str, at: int) -> int:
        value: int = struct.unpack_from(kind, metadata, at)[0]
        return value

    def place(table: int, field: int) -> int:
        """Return where a field of a table is, 0 if it has none."""
        directory = table - number("<i", table)
        entry = 4 + 2 * field
        offset = number("<H", directory + entry) if entry < number("<H", directory) else 0
        return table + offset if offset else 0

    def inner(table: int, field: int) -> int:
        at = place(table, field)
        return at + number("<I", at)

    try:
        message = number("<I", 0)
        batch, kind = inner(message, _HEADER), place(message, _HEADER_TYPE)
        if number("<B", kind) == _DICTIONARY:
            batch = inner(batch, _DATA)
        return place(batch, _COMPRESSION) != 0
    except struct.error as error:
        raise ValueError(f"damaged metadata ({error})") from error
