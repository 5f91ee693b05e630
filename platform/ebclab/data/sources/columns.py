"""Columns of an Arrow table that hold images or labels, as Parquet files and saved datasets have them.

Images are encoded: bytes, or Hugging Face's structs of bytes and a path. Labels are numbers, words, or the numbers of
Hugging Face's ``ClassLabel``.
"""

from __future__ import annotations

import os
import posixpath
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow import fs
from torch import Tensor

from ebclab.data.class_labels import Labels, joined, of_words
from ebclab.data.photograph import Reading
from ebclab.data.sources.image_source import EncodedSource, RowIndex
from ebclab.data.sources.location import tell_once
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location
from ebclab.storage.reading import foreign_json_value

INDEX_COLUMN = "index"
"""Column of sample keys in a Parquet file."""

_USUAL = Reading()
_FALSE_AND_TRUE = ("false", "true")


def holds_encoded(kind: pa.DataType) -> bool:
    """Return whether values of a kind are encoded images: bytes, or structs with a field ``bytes``."""
    if pa.types.is_struct(kind):
        if kind.get_field_index("bytes") < 0:
            return False
        inner = kind.field("bytes").type
        return holds_encoded(inner) or (pa.types.is_null(inner) and kind.get_field_index("path") >= 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def image_column_of(
    name: str,
    where: str,
    schema: pa.Schema,
    reading: Reading,
    is_image: Callable[[pa.DataType], bool] = holds_encoded,
) -> str:
    """Return the column of images in a file: the one that settings name, or the only one where none has the usual name.

    Logs once that the dataset ``name`` has no column of the usual name for labels, where others may be that.
    """
    wanted, labels = reading.image_column, reading.label_column
    columns = [each.name for each in schema if is_image(each.type)]
    if wanted not in schema.names and wanted == _USUAL.image_column and len(columns) == 1:
        wanted = columns[0]
    if twice := [each for each in (wanted, labels, INDEX_COLUMN) if schema.names.count(each) > 1]:
        raise DataError(f"data.name: {where} has several columns called {twice[0]}; rename the others")
    hint = f"set data.image_column={columns[0]}" if columns else "no column holds images; write them encoded, as bytes"
    if wanted not in schema.names:
        names = ", ".join(schema.names)
        raise DataError(f"data.image_column: {where} has no column {wanted}, got columns {names}; {hint}")
    if not is_image(kind := schema.field(wanted).type):
        raise DataError(
            f"data.image_column: {wanted} of {where} holds no images, got {kind}, expected encoded images as bytes, or "
            f"in Parquet fixed-shape tensors of unsigned bytes (C, H, W); {hint}"
        )
    others = [each for each in schema.names if each not in (wanted, INDEX_COLUMN)]
    if others and labels == _USUAL.label_column and labels not in schema.names:
        tell_once(
            f"{name}: has no column {labels}, so its images have no labels, got columns {', '.join(others)}; "
            "data.label_column names another"
        )
    return wanted


def without_views(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return images whose bytes are stored as Polars stores them in a form of which rows can be taken."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        whole = pa.struct([each.with_type(_whole_values(each.type)) for each in fields])
    else:
        whole = _whole_values(kind)
    return column if whole == kind else column.cast(whole)


def _whole_values(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    return pa.large_string() if pa.types.is_string_view(kind) else kind


class FileIndex(NamedTuple):
    """What is known about one file of tables without reading its images."""

    image_column: str  # empty if it has no rows
    rows_of_group: list[int]
    labels: Labels
    keys: Tensor | None = None  # None: the rows of all files are numbered


class TableSource(EncodedSource):
    """One split of a set of tables, of which a column holds the images; rows that are read together are a group."""

    groups_measured = 4
    form: ClassVar[str]  # of a file, in words
    group_name: ClassVar[str]  # what the format calls a group
    _groups: list[tuple[str, int]]  # file and number within it, of each group

    def _set_index(self, files: Mapping[str, FileIndex]) -> None:
        """Set the fields that follow from the rows of all files, by their paths."""
        every, where = list(files.values()), self._place.path
        columns = sorted({each.image_column for each in every} - {""})
        if len(columns) > 1:
            raise DataError(
                f"data.image_column: the files of {where} must hold their images in one column, "
                f"got {' and '.join(columns)}; rename one"
            )
        counts = torch.tensor([rows for each in every for rows in each.rows_of_group], dtype=torch.int64)
        if (num_rows := int(counts.sum())) == 0:
            raise DataError(f"data.name: {self.name} holds no rows, got {len(files)} empty files in {where}")
        self.reading = replace(self.reading, image_column=columns[0])
        self._groups = [(file, number) for file, each in files.items() for number in range(len(each.rows_of_group))]
        labels = joined([each.labels for each in every], where)
        self.class_names = labels.names or self.class_names
        keys = [each.keys for each in every if each.keys is not None] or [torch.arange(num_rows)]
        self.index = RowIndex.grouped(torch.cat(keys), labels.numbers, counts)
        self.example = self._first_example()

    @abstractmethod
    def _images(self, file: str, number: int) -> pa.Array | pa.ChunkedArray:
        """Return the column of images of a group."""

    def encoded(self, group: int, places: Sequence[int]) -> Iterator[tuple[str, bytes]]:
        yield from self._contents(self._images(*self._groups[group]), group, places)

    def _contents(
        self, column: pa.Array | pa.ChunkedArray, group: int, places: Sequence[int]
    ) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents of images; of a struct without bytes, the file beside the table that it names."""
        file, number = self._groups[group]
        with self._reading_of(file, self.form):
            values, paths = without_views(column).take(pa.array(places, pa.int64())), None
        if pa.types.is_struct(values.type):
            has_path = values.type.get_field_index("path") >= 0
            values, paths = pc.struct_field(values, "bytes"), pc.struct_field(values, "path") if has_path else None
        for row, (place, content) in enumerate(zip(places, values, strict=True)):
            name = f"{self._where(file)}, row {place} of {self.group_name} {number}"
            path = None if content.is_valid or paths is None else paths[row].cast(pa.binary()).as_py()
            inside = path.decode(errors="replace") if path else ""
            yield name, _read_beside(self._place, file, inside, name) if path else content.as_py() or b""


def _read_beside(place: Location, file: str, path: str, name: str) -> bytes:
    """Return the content of a file by its path from the folder of the table's file, which it must not leave."""
    folder = posixpath.dirname(place.inner_path(file))
    inside = path.removeprefix(f"{folder}/")
    whole = f"{folder}/{inside}"
    is_inside = path.isprintable() and "\ufffd" not in path and {"", ".", ".."}.isdisjoint(inside.split("/"))
    if place.is_local:
        is_inside = is_inside and os.path.realpath(whole).startswith(f"{os.path.realpath(folder)}/")
    remedy = "write the table again with the images in it"
    if not is_inside:
        raise DataError(f"{name}: holds a path and no bytes, which leads out of its folder, got {path!r:.80}; {remedy}")
    try:
        if place.filesystem.get_file_info(whole).type != fs.FileType.File:
            raise DataError(f"{name}: holds a path and no bytes, got no file {inside:.80} beside the table; {remedy}")
        with place.filesystem.open_input_stream(whole, compression=None) as opened:
            content: bytes = opened.read()
            return content
    except OSError as error:
        raise DataError(f"{name}: its image {inside:.80} cannot be read, got {error}; check permissions") from error


def labels_of(column: pa.ChunkedArray, names: tuple[str, ...], where: str) -> Labels:
    """Return the labels of a column called ``where`` in messages, -1 where it is empty or no number.

    It holds whole numbers, which may be stored as floats, words or booleans; or a dictionary of such values.

    Args:
        names: Names of the classes by number, for numbers.
    """
    kind = _values_of(column.type)
    if holds_words(column.type):
        chunks = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        return joined([Labels(torch.empty(0, dtype=torch.int64)), *map(_of_words, chunks.chunks)], where)
    if pa.types.is_null(kind):
        return Labels(torch.full((len(column),), -1), names)
    of_numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    if not any(is_kind(kind) for is_kind in of_numbers):
        raise DataError(
            f"data.label_column: {where} must hold whole numbers or words, got {kind}; convert it, or name another "
            "column or none"
        )
    column = column.cast(kind)
    if pa.types.is_boolean(kind):
        column, names = column.cast(pa.int8()), names or _FALSE_AND_TRUE
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    return Labels(whole_numbers(column, f"data.label_column: {where}"), names)


def holds_words(kind: pa.DataType) -> bool:
    """Return whether a column of a kind holds text, in which case its values have any length."""
    values = _values_of(kind)
    return bool(pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values))


def whole_numbers(column: pa.ChunkedArray, where: str) -> Tensor:
    """Return a column of numbers, (n,) int64, -1 where it is empty; ``where`` is the setting and the column."""
    try:
        values: Tensor = torch.from_numpy(column.cast(pa.int64()).fill_null(-1).to_numpy().copy())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{where} must hold whole numbers of 64 bits with a sign, got {error}; renumber them"
        ) from error
    return values


def class_names_in(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """Return the class names that Hugging Face's ``datasets`` wrote into a schema; empty where there are none."""
    metadata = (schema.metadata or {}).get(b"huggingface")
    value = foreign_json_value(metadata) if metadata else None
    for key in ("info", "features"):
        value = value.get(key) if isinstance(value, dict) else None
    return names_of_feature(value, column)


def names_of_feature(features: object, column: str) -> tuple[str, ...]:
    """Return the class names of a column among Hugging Face's features; empty where it has none."""
    feature = features.get(column) if isinstance(features, dict) else None
    names = feature.get("names") if isinstance(feature, dict) else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _values_of(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _of_words(chunk: pa.DictionaryArray) -> Labels:
    codes = torch.from_numpy(chunk.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False).copy())
    used, places = torch.unique(codes, return_inverse=True)
    labels = of_words((chunk.dictionary[code].as_py() or "") if code >= 0 else "" for code in used.tolist())
    return Labels(labels.numbers[places], labels.names)
