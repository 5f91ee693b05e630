"""Labels in a column of an Arrow table: numbers, words, or the numbers of Hugging Face's ``ClassLabel``."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from ebclab.data.class_labels import Labels, joined, of_words
from ebclab.errors import DataError
from ebclab.storage.reading import foreign_json_value

_FALSE_AND_TRUE = ("false", "true")


def labels_of(column: pa.ChunkedArray, names: tuple[str, ...], where: str) -> Labels:
    """Return the labels of a column, -1 where it is empty or no number.

    Args:
        column: Of whole numbers, also stored as floats, of words, or of booleans; or a dictionary of such values.
        names: Names of the classes by number, for numbers.
        where: Name of the column in messages.
    """
    kind = _values_of(column.type)
    if holds_words(column.type):
        chunks = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        return joined([Labels(torch.empty(0, dtype=torch.int64)), *map(_of_words, chunks.chunks)], where)
    if pa.types.is_null(kind):
        return Labels(torch.full((len(column),), -1), names)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
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
    return bool(pa.types.is_string(values) or pa.types.is_large_string(values))


def whole_numbers(column: pa.ChunkedArray, what: str) -> Tensor:
    """Return a column of numbers, (n,) int64; -1 where it is empty.

    Args:
        what: The setting and the column in the message.
    """
    try:
        values: Tensor = torch.from_numpy(column.cast(pa.int64()).fill_null(-1).to_numpy().copy())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{what} must hold whole numbers of 64 bits with a sign, got {error}; number them anew"
        ) from error
    return values


def class_names_in(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """Return the class names that Hugging Face's ``datasets`` wrote into a schema; empty where there are none."""
    told = (schema.metadata or {}).get(b"huggingface")
    value = foreign_json_value(told) if told else None
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
    found = of_words((chunk.dictionary[code].as_py() or "") if code >= 0 else "" for code in used.tolist())
    return Labels(found.numbers[places], found.names)
