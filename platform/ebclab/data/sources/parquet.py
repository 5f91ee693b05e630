"""Parquet sets: encoded images or fixed-shape tensors in one column, optional labels and index in others.

A file's footer and page headers, structs in Thrift's compact protocol (https://github.com/apache/parquet-format), are
read here before pyarrow sees them: the footer's totals are not binding, and pyarrow ends the process where it
contradicts itself (`terminate called`).
"""

from __future__ import annotations

import io
import math
import os
import posixpath
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ebclab.data.class_labels import Labels, joined, label_of, of_values
from ebclab.data.hashing import hash_words
from ebclab.data.image_set import digest_of_files
from ebclab.data.photograph import Decoded, Example, Reading, decode_images, mixed_sizes
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.columns import (
    INDEX_COLUMN,
    FileIndex,
    TableSource,
    class_names_in,
    holds_encoded,
    holds_words,
    image_column_of,
    labels_of,
    whole_numbers,
)
from ebclab.data.sources.image_source import Statistics
from ebclab.data.sources.location import any_word, files_ending, files_of_split, hash_of_path, tell_once, typed_file
from ebclab.errors import DataError
from ebclab.formatting import first_few
from ebclab.storage.filesystem import Location

DESCRIPTION = "dataset.json"
"""File beside the splits with the class names and statistics of a prepared dataset."""

CHECKSUMS = "checksums.json"
"""File with the shards of a prepared dataset, their sizes and SHA-256 sums."""

LEFT_OUT = "left_out.jsonl"
"""File of a prepared dataset that names the images that were left out, if there are any."""

_EMPTY = "__HIVE_DEFAULT_PARTITION__"  # how a folder's name says that a column is empty
_NEVER_A_BOMB = 1 << 30  # bytes
_HIGHEST_RATIO = 1000  # of a file decompressed to the file
_BATCHES = 8  # that have room together, if values occur as often as they may
_INDEX_THREADS = 8  # they wait for storage
_SHOWN = 5  # folders in a message

_MAGIC, _LONGEST_FOOTER = b"PAR1", 1 << 25
_BYTE_ARRAYS = (6, 7)  # physical types: of any length, and of one length
_OF_DICTIONARY, _OF_EARLIER_VALUE = (2, 8), 7  # encodings that repeat a value of the dictionary, or the value before
_DEEPEST = 12  # structs and lists within each other
_UNCOMPRESSED, _COMPRESSED, _HEADERS, _DICTIONARY_HEADER, _SECOND = 2, 3, (5, 7, 8), 7, 8  # fields by number
_BYTES_OF_A_VALUE = 8  # in memory, beside its content
_ENDS_AFTER = 10  # bytes of the longest integer

_Value = int | bytes | list["_Value"] | dict[int, "_Value"]
_Fields = dict[int, _Value]
T = TypeVar("T", int, bytes, list[_Value], _Fields)


@dataclass(frozen=True)
class _Description:
    """The content of dataset.json."""

    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class _Shard:
    """An entry of checksums.json."""

    bytes: int
    sha256: str = ""


class ParquetSource(TableSource):
    """One split of a Parquet file or a folder of such, local or in an object store; a row group is a group.

    The image column holds encoded images (as bytes, or as a struct with a field ``bytes``) or fixed-shape tensors of
    unsigned bytes (C, H, W). An integer column ``index`` is the sample key, else the key is the hash of file and row.
    """

    suffix = ".parquet"
    form, group_name = "Parquet file", "row group"

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        self.name, self.reading = name, reading
        self._place = Location(path)
        sizes = files_ending(self._place, self.suffix, name, (DESCRIPTION, CHECKSUMS, LEFT_OUT))
        sums = self._require_all_shards()
        self.class_names, self.statistics = self._describe()
        paths = files_of_split(list(sizes), split, name, any_word)
        tops = sorted(
            {top for top, sign, _ in (path.partition("/") for path in paths.values()) if sign and "=" not in top}
        )
        if len(tops) > 1:  # as configurations of a dataset on the Hub are stored
            tell_once(f"{name}: the files of {len(tops)} folders are read as one set: {first_few(tops, _SHOWN)}")
        self.files_digest = digest_of_files({inside: sums.get(file) or sizes[file] for file, inside in paths.items()})
        with ThreadPoolExecutor(_INDEX_THREADS) as pool:
            files = dict(zip(paths, pool.map(self._read_file_index, paths, paths.values()), strict=True))
        self._require_different_keys(torch.cat([each.keys for each in files.values() if each.keys is not None]))
        self._set_index(files)
        if self.statistics and len(self.statistics.mean) != self.example.shape[0]:
            self.statistics = None  # they are of the colours, and grey is read, or the other way round

    def read(self, group: int, places: Tensor) -> Decoded:
        file, number = self._groups[group]
        column = self._images(file, number)
        if not isinstance(column.type, pa.FixedShapeTensorType):
            return decode_images(self._contents(column, group, places.tolist()), self.reading, self.example)
        if tuple(column.type.shape) != self.example.shape:
            raise mixed_sizes(Example(self._where(file), tuple(column.type.shape)), self.example)
        column = column.take(pa.array(places.numpy()))
        if empty := column.null_count + sum(chunk.storage.flatten().null_count for chunk in column.chunks):
            raise DataError(
                f"{self._where(file)}, row group {number}: tensors need all their values, got {empty:,} that are "
                "empty; leave these rows out of the file"
            )
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        images = torch.from_numpy(array.to_numpy_ndarray().copy())
        return Decoded(images, torch.ones(len(images), dtype=torch.bool), [])

    def encoded(self, group: int, places: Sequence[int]) -> Iterator[tuple[str, bytes]]:
        column = self._images(*self._groups[group])
        if not isinstance(column.type, pa.FixedShapeTensorType):
            yield from self._contents(column, group, places)

    def _first_example(self) -> Example:
        file, number = self._groups[int(self.index.groups[0])]
        kind = self._images(file, number).type
        if isinstance(kind, pa.FixedShapeTensorType):
            channels, height, width = kind.shape
            return Example(self._where(file), (channels, height, width))
        return super()._first_example()

    def _images(self, file: str, number: int) -> pa.ChunkedArray:
        with self._open(file) as opened:
            return opened.read([number], [self.reading.image_column]).column(0)

    @contextmanager
    def _open(self, file: str) -> Iterator[_ParquetFile]:
        with (
            self._reading_of(file, self.form),
            self._place.filesystem.open_input_file(self._place.inner_path(file)) as handle,
        ):
            yield _ParquetFile(handle, self._where(file))

    def _read_file_index(self, file: str, path_in_split: str) -> FileIndex:
        where = self._where(file)
        with self._open(file) as parquet:
            opened = parquet.opened
            schema, label = opened.schema_arrow, self.reading.label_column
            str(schema.remove_metadata())  # names of columns and fields are decoded late
            of_folder = None if label in schema.names else _partition_of(path_in_split, label)
            with_label = schema if of_folder is None else schema.append(pa.field(label, pa.string()))
            images = self._require_image_column(where, with_label)
            known = sorted(set(schema.names) & {INDEX_COLUMN, label})
            groups = range(opened.num_row_groups)
            rows_of_group = [opened.metadata.row_group(number).num_rows for number in groups]
            names = self.class_names or class_names_in(schema, label)
            by_group = label in known and holds_words(schema.field(label).type)  # which take any room
            labels, keys = [Labels(torch.empty(0, dtype=torch.int64), names)], []
            lots = [[number] for number in groups] if by_group else [list(groups)]
            for lot in lots if known and groups else []:
                table = parquet.read(lot, known)
                if label in known:
                    labels.append(labels_of(table.column(label), names, f"column {label} of {where}"))
                if INDEX_COLUMN in known:
                    keys.append(_keys_in(table.column(INDEX_COLUMN), where))
        count = sum(rows_of_group)
        if not keys:
            keys = [hash_words(hash_of_path(path_in_split or self._place.path.split("/")[-1]), torch.arange(count))]
        if label not in known:
            one = _label_of_folder(of_folder, names, where)
            labels.append(Labels(one.numbers.repeat(count), one.names))
        return FileIndex(images, rows_of_group, joined(labels, where), torch.cat(keys))

    def _require_image_column(self, where: str, schema: pa.Schema) -> str:
        name = image_column_of(self.name, where, schema, self.reading, _holds_images)
        if isinstance(schema.field(name).type, pa.FixedShapeTensorType) and self.reading.resize:
            raise DataError(
                f"data.resize: the images of {where} are tensors and keep their size, "
                f"got {self.reading.resize}; leave it out, views.image_size sets the size of views"
            )
        return name

    def _require_all_shards(self) -> dict[str, str]:
        """Compare name and size of the files with the list of a prepared dataset; return its SHA-256 sums."""
        if self._place.size(CHECKSUMS) is None:
            return {}
        shards = typed_file(self._place, CHECKSUMS, dict[str, _Shard])
        for name, shard in shards.items():
            size = self._place.size(name) if {"", ".", ".."}.isdisjoint(name.split("/")) else None
            if size != shard.bytes:
                state = "is missing" if size is None else f"has {size} bytes instead of {shard.bytes}"
                raise DataError(f"{self._where(name)}: the set is not complete, the file {state}; copy it again")
        return {name: shard.sha256 for name, shard in shards.items()}

    def _describe(self) -> tuple[tuple[str, ...], Statistics | None]:
        """Return the class names and statistics that are stored with a prepared set."""
        if self._place.size(DESCRIPTION) is None:
            return (), None
        described = typed_file(self._place, DESCRIPTION, _Description)
        mean, std = described.mean, described.std
        if not (mean and len(mean) == len(std) and all(map(math.isfinite, (*mean, *std))) and min(std) >= 0):
            raise DataError(
                f"{self._where(DESCRIPTION)}: needs a mean and a std of at least 0 a channel, got {mean} and {std}; "
                "copy it again, or delete it and the statistics are computed again"
            )
        return described.class_names, Statistics(mean, std)

    def _require_different_keys(self, keys: Tensor) -> None:
        unique, times = torch.unique(keys, return_counts=True)
        if len(unique) < len(keys):
            raise DataError(
                f"data.name: the column {INDEX_COLUMN} of {self._place.path} must differ in every row, "
                f"got {int(unique[times.argmax()])} {int(times.max())} times; number the rows, or leave it out"
            )


def _partition_of(path: str, column: str) -> str | None:
    """Return a column's value in the names of a file's folders, as in ``label=ant/0.parquet``; None without one."""
    parts = (part.partition("=") for part in posixpath.dirname(path).split("/"))
    return next((unquote(value) for name, sign, value in parts if sign and name == column), None)


def _label_of_folder(value: str | None, names: tuple[str, ...], where: str) -> Labels:
    """Return the label that a folder's name gives a file, with ``names`` for a number; unknown without one."""
    try:
        one = of_values([label_of(None if value == _EMPTY else value, where)], where)
    except ValueError as error:
        raise DataError(f"data.label_column: {error}; rename the folder") from error
    return Labels(one.numbers, one.names or names)


def _keys_in(column: pa.ChunkedArray, where: str) -> Tensor:
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(
            f"data.name: column {INDEX_COLUMN} of {where} must hold whole numbers, got {column.type} "
            f"with {column.null_count} empty; convert it, rename it or leave it out"
        )
    return whole_numbers(column, f"data.name: column {INDEX_COLUMN} of {where}")


class _ParquetFile:
    """An open Parquet file, of which only what has room is decoded; ``where`` is its name in messages."""

    def __init__(self, handle: pa.NativeFile, where: str) -> None:
        self._chunks, self._where = Chunks(handle), where
        self.opened = pq.ParquetFile(self._chunks, page_checksum_verification=True)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._room = min(max(_NEVER_A_BOMB, _HIGHEST_RATIO * self._chunks.num_bytes), memory // 2)  # of a row group

    def read(self, numbers: Sequence[int], columns: list[str]) -> pa.Table:
        """Return columns of row groups, at least one; what their pages state is checked first."""
        held = self._chunks.groups()
        if len(held) != self.opened.num_row_groups:
            raise ValueError("a damaged footer")
        groups = [self.opened.metadata.row_group(number) for number in numbers]
        own = [[chunk for chunk in held[number] if chunk.column in columns] for number in numbers]
        stated = [self._stated(*each) for each in zip(groups, own, strict=True)]
        if sum(whole for whole, _ in stated) <= self._room and all(each == 0 for _, each in stated):
            table = self.opened.read_row_groups(list(numbers), columns=columns, use_threads=False)
        else:
            table = pa.concat_tables(
                self._read_in_parts(number, columns, *each) for number, each in zip(numbers, stated, strict=True)
            )
        if table.num_rows != (rows := sum(group.num_rows for group in groups)):
            raise ValueError(f"{table.num_rows:,} rows, {rows:,} were expected")
        return table

    def _stated(self, group: pq.RowGroupMetaData, own: Sequence[Chunk]) -> tuple[int, int]:
        """Return what the pages of a row group's chunks state: bytes in memory, and bytes of repeated values."""
        self._require_room(group, sum(chunk.num_bytes for chunk in own))
        pages = [pages_of(self._chunks.hold(chunk), chunk) for chunk in own]
        whole = sum(num_bytes for num_bytes, _ in pages)
        self._require_room(group, whole)
        return whole, sum(repeated for _, repeated in pages)

    def _read_in_parts(self, number: int, columns: list[str], whole: int, repeated: int) -> pa.Table:
        """Return columns of a row group, in batches that have room even if each row has its column's largest value.

        Where values are stored once and may occur often, only reading tells how large the columns become.
        """
        group = self.opened.metadata.row_group(number)
        if whole + group.num_rows * repeated <= self._room:
            return self.opened.read_row_group(number, columns=columns, use_threads=False)
        batches, taken = [], 0
        rows = max(1, self._room // (_BATCHES * repeated))
        for batch in self.opened.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False):
            taken += batch.nbytes
            self._require_room(group, taken)
            batches.append(batch)
        return pa.Table.from_batches(batches)

    def _require_room(self, group: pq.RowGroupMetaData, size: int) -> None:
        if not 0 <= size <= self._room or group.num_rows < 0:
            raise DataError(
                f"{self._where}: too large to be read, got a row group of {group.num_rows:,} rows and {size:,} bytes "
                f"in a file of {self._chunks.num_bytes:,}; write it with smaller row groups, or replace it"
            )


def _holds_pixels(kind: pa.FixedShapeTensorType) -> bool:
    """Return whether tensors are bytes (C, H, W) in that order of memory; (H, W, 3) and (H, W, 1) are not."""
    if kind.value_type != pa.uint8() or len(kind.shape) != 3 or 0 in kind.shape:
        return False
    if kind.permutation and kind.permutation != sorted(kind.permutation):
        return False
    return kind.shape[0] in (1, 3) or kind.shape[2] not in (1, 3)


def _holds_images(kind: pa.DataType) -> bool:
    return _holds_pixels(kind) if isinstance(kind, pa.FixedShapeTensorType) else holds_encoded(kind)


# Where the pages of a file are, and what they become in memory
class Chunk(NamedTuple):
    """What the footer says of a column chunk."""

    column: str  # name of the column in the table; a struct's fields have chunks of their own
    physical_type: int  # number of its type in the format
    num_values: int
    num_bytes: int  # size of the values, decompressed
    start: int  # where its first page begins
    stored_bytes: int  # its size in the file


class Chunks(io.RawIOBase):
    """A Parquet file whose column chunks can be looked at before they are decoded, and are still read once."""

    def __init__(self, handle: pa.NativeFile) -> None:
        super().__init__()
        self._handle, self._at, self.num_bytes = handle, 0, handle.size()
        self._held: dict[int, bytes] = {}

    def groups(self) -> tuple[tuple[Chunk, ...], ...]:
        """Return the column chunks of each row group, by the footer."""
        end = self._handle.read_at(8, max(self.num_bytes - 8, 0))
        size = int.from_bytes(end[:4], "little")
        if end[4:] != _MAGIC or not size <= min(self.num_bytes - 8, _LONGEST_FOOTER):
            raise ValueError(f"a footer of {size:,} bytes in a file of {self.num_bytes:,}")
        return _groups_of(self._handle.read_at(size, self.num_bytes - 8 - size))

    def hold(self, chunk: Chunk) -> bytes:
        """Return the bytes of a column chunk, and keep them until they are read."""
        start, size = chunk.start, chunk.stored_bytes
        if not 0 <= start <= start + size <= self.num_bytes:
            raise ValueError(f"a column of {size:,} bytes at {start:,} in a file of {self.num_bytes:,}")
        self._held[start] = self._handle.read_at(size, start)
        return self._held[start]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.num_bytes}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self.num_bytes - self._at, 0)
        size = left if size < 0 else min(size, left)
        held = self._held.pop(self._at, b"") if size else b""
        content = held if len(held) == size else self._handle.read_at(size, self._at)
        self._at += len(content)
        return content


def pages_of(content: bytes, chunk: Chunk) -> tuple[int, int]:
    """Return what the pages in a column chunk's bytes become in memory, by their headers.

    These are the bytes of all values, and an upper bound of a value that may be stored once and occur often, 0 if there
    is none.
    """
    at = num_bytes = num_values = repeated = dictionary = 0
    while at < len(content):
        try:
            fields, at = _struct(content, at)
        except IndexError:
            raise ValueError("a damaged page header") from None
        size, compressed = fields.get(_UNCOMPRESSED), fields.get(_COMPRESSED)
        held = {number: each for number in _HEADERS if isinstance(each := fields.get(number), dict)}
        counts = [each.get(1) for each in held.values()]
        numbers = [each for each in (size, compressed, *counts) if isinstance(each, int) and each >= 0]
        if not isinstance(size, int) or not isinstance(compressed, int) or len(numbers) < 2 + len(counts):
            raise ValueError("a damaged page header")
        at += compressed
        num_bytes += size
        for number, each in held.items():
            if number == _DICTIONARY_HEADER:
                dictionary = max(dictionary, size)
                continue
            num_values += int(each[1])  # type: ignore[arg-type]
            encoding = each.get(4 if number == _SECOND else 2)
            if encoding in _OF_DICTIONARY:
                repeated = max(repeated, dictionary)
            elif encoding == _OF_EARLIER_VALUE:
                repeated = max(repeated, size)
    if at != len(content) or num_values < chunk.num_values:
        raise ValueError(f"pages of {num_values:,} values, {chunk.num_values:,} were expected")
    return num_bytes + _BYTES_OF_A_VALUE * num_values, repeated if chunk.physical_type in _BYTE_ARRAYS else 0


@lru_cache(maxsize=16)  # a file is opened for each of its row groups
def _groups_of(footer: bytes) -> tuple[tuple[Chunk, ...], ...]:
    try:
        groups = _field(_struct(footer, 0)[0], 4, list)
        columns = [[_field(chunk, 3, dict) for chunk in _field(group, 1, list)] for group in groups]
        return tuple(tuple(map(_chunk, group)) for group in columns)
    except (IndexError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError("a damaged footer") from None


def _chunk(fields: _Fields) -> Chunk:
    """Return a chunk from its fields: 1 type, 3 path, 5 values, 6 and 7 sizes, 9 first data page, 11 dictionary."""
    path = _field(fields, 3, list)[0]
    if not isinstance(path, bytes):
        raise TypeError(path)
    kind, count, size, stored, first = (_field(fields, number, int) for number in (1, 5, 6, 7, 9))
    dictionary = fields.get(11)
    start = min(first, dictionary) if isinstance(dictionary, int) and dictionary > 0 else first
    return Chunk(path.decode(), kind, count, size, start, stored)


def _field(fields: _Value, number: int, kind: type[T]) -> T:
    value = fields[number] if isinstance(fields, dict) else fields
    if not isinstance(fields, dict) or not isinstance(value, kind):
        raise TypeError(value)
    return value


def _struct(content: bytes, at: int, depth: int = 0) -> tuple[_Fields, int]:
    """Return the fields of a struct by number, and where it ends."""
    fields, number = _Fields(), 0
    while head := content[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(content, at)
        if head & 15 in (1, 2):  # a field's bool is in its head, an element's is a byte
            fields[number] = 2 - (head & 15)
        else:
            fields[number], at = _value(content, at, head & 15, depth)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[_Value, int]:
    """Return a value of a kind by its number in the protocol, and where it ends."""
    match kind:
        case 1 | 2 | 3:
            return content[at], at + 1
        case 4 | 5 | 6:
            return _integer(content, at)
        case 7 | 8:
            length, at = (8, at) if kind == 7 else _unsigned(content, at)
            if at + length > len(content):
                raise IndexError
            return content[at : at + length], at + length
        case 9 | 10 if depth < _DEEPEST:
            return _list(content, at, depth + 1)
        case 12 if depth < _DEEPEST:
            return _struct(content, at, depth + 1)
    raise IndexError


def _list(content: bytes, at: int, depth: int) -> tuple[list[_Value], int]:
    length, kind, at = content[at] >> 4, content[at] & 15, at + 1
    if length == 15:
        length, at = _unsigned(content, at)
    values = []
    for _ in range(length):
        value, at = _value(content, at, kind, depth)
        values.append(value)
    return values, at


def _integer(content: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(content, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(content: bytes, at: int) -> tuple[int, int]:
    """Return a number in parts of seven bits, the lowest first, and where it ends."""
    value = 0
    for place in range(_ENDS_AFTER):
        value |= (content[at + place] & 0x7F) << 7 * place
        if content[at + place] < 0x80:
            return value, at + place + 1
    raise IndexError
