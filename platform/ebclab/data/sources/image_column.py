"""Encoded images in a column of an Arrow table: their bytes, or Hugging Face's structs of bytes and a path."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ebclab.data.sources.decode import Reading
from ebclab.data.sources.location import tell_once
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_USUAL = Reading()


def holds_encoded(kind: pa.DataType) -> bool:
    """Return whether values of a kind are encoded images: bytes, or structs with a field ``bytes``."""
    if pa.types.is_struct(kind):
        if kind.get_field_index("bytes") < 0:
            return False
        held = kind.field("bytes").type
        return holds_encoded(held) or (pa.types.is_null(held) and kind.get_field_index("path") >= 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def image_column_of(schema: pa.Schema, wanted: str, is_image: Callable[[pa.DataType], bool]) -> str:
    """Return ``wanted``, or the only column of images where there is no column of the usual name."""
    if wanted in schema.names or wanted != _USUAL.image_column:
        return wanted
    held = [each.name for each in schema if is_image(each.type)]
    return held[0] if len(held) == 1 else wanted


def tell_without_labels(name: str, schema: pa.Schema, wanted: str, images: str) -> None:
    """Log once that there is no column of the usual name for labels, where others may be that."""
    others = [each for each in schema.names if each not in (images, "index")]
    if others and wanted == _USUAL.label_column and wanted not in schema.names:
        tell_once(
            f"{name}: has no column {wanted}, so its images have no labels, got columns {', '.join(others)}; "
            "data.label_column names another"
        )


def contents_of(
    column: pa.Array | pa.ChunkedArray, place: Location, file: str, names: Iterable[str]
) -> Iterator[bytes]:
    """Yield the encoded images of a column; where a struct has no bytes, those of the file that its path names.

    Args:
        file: The table's file below it.
        names: Name of each image in messages.
    """
    values, paths = column, None
    if pa.types.is_struct(column.type):
        values = pc.struct_field(column, "bytes")
        paths = pc.struct_field(column, "path") if column.type.get_field_index("path") >= 0 else None
    for number, (content, name) in enumerate(zip(values, names, strict=True)):
        path = None if content.is_valid or paths is None else paths[number].cast(pa.binary()).as_py()
        yield _read_beside(place, file, path.decode(errors="replace"), name) if path else content.as_py() or b""


def _read_beside(place: Location, file: str, path: str, name: str) -> bytes:
    """Return the content of a file by its path from the folder of the table's file, which it must not leave."""
    folder = posixpath.dirname(place.inner_path(file))
    inside = path.removeprefix(f"{folder}/")
    whole = f"{folder}/{inside}"
    is_inside = path.isprintable() and "\ufffd" not in path and {"", ".", ".."}.isdisjoint(inside.split("/"))
    if place.is_local:
        is_inside = is_inside and os.path.realpath(whole).startswith(f"{os.path.realpath(folder)}/")
    way_out = "write the table again with the images in it"
    if not is_inside:
        raise DataError(
            f"{name}: holds a path and no bytes, which leads out of its folder, got {path!r:.80}; {way_out}"
        )
    try:
        if place.filesystem.get_file_info(whole).type != fs.FileType.File:
            raise DataError(f"{name}: holds a path and no bytes, got no file {inside:.80} beside the table; {way_out}")
        with place.filesystem.open_input_stream(whole, compression=None) as opened:
            content: bytes = opened.read()
            return content
    except OSError as error:
        raise DataError(f"{name}: its image {inside:.80} cannot be read, got {error}; check permissions") from error
