"""Labels in a table beside images: ``metadata.csv`` and ``metadata.jsonl`` as Hugging Face's ImageFolder reads them, or
the file that ``data.labels`` names.

A table names images by their paths from its folder. It may leave out their suffix, or the folder of their split, where
this leaves no doubt.
"""

from __future__ import annotations

import csv
import io
import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from ebclab.data.class_labels import Labels, comparable, label_of, of_values
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.location import folder_word, is_split, tell_once
from ebclab.errors import DataError
from ebclab.formatting import count, first_few
from ebclab.storage.filesystem import Location
from ebclab.storage.reading import foreign_json_value

TABLES = ("metadata.csv", "metadata.jsonl")

_LARGEST = 256 << 20  # bytes; ImageNet's would have 60 million
_DELIMITERS = ",;\t|"
_SHOWN = 3  # images in a message
_CLASSES_SHOWN = 10
_USUAL = Reading()


def labels_in_tables(
    name: str,
    place: Location,
    tables: Iterable[str],
    images: Collection[str],
    chosen: Collection[str],
    reading: Reading,
) -> Labels | None:
    """Return the labels of the ``chosen`` ones of all ``images`` of a dataset; None if no table is about them."""
    found: dict[str, int | str] = {}
    told: list[str] = []
    used: list[str] = []
    for table in tables:
        prefix = table[: table.rfind("/") + 1]
        if not any(file.startswith(prefix) for file in chosen):
            continue
        where = f"{place.path}/{table}"
        rows, repeated = _rows(name, place, table, where, reading)
        if rows is None:
            continue
        image_of = _images_by_name(rows, [file for file in images if file.startswith(prefix)], prefix)
        found |= {image_of[path]: label for path, label in rows.items() if path in image_of}
        used.append(table)
        strange = [path for path in rows if path not in image_of]
        if len(strange) == len(rows):
            raise DataError(
                f"data.labels: {where} names none of the images, got {first_few(strange, _SHOWN)}; write their paths "
                "from the folder of this file"
            )
        told += [f"{count(repeated, 'row')} of {table} repeated"] if repeated else []
        told += [f"{count(len(strange), 'row')} of {table} for no image: {first_few(strange, _SHOWN)}"] * bool(strange)
    if not used:
        return None
    labels = of_values([found.get(file, -1) for file in chosen], place.path)
    if without := [file for file in chosen if file not in found]:
        counts = f"{len(without):,} of {count(len(chosen), 'image')}"
        told.append(f"{counts} without a row, which have no label: {first_few(without, _SHOWN)}")
    order = f", classes in the order {first_few(labels.names, _CLASSES_SHOWN)}" if labels.names else ""
    tell_once("; ".join([f"{name}: labels are those of {first_few(used, _SHOWN)}{order}", *told]))
    return labels


def _rows(
    name: str, place: Location, table: str, where: str, reading: Reading
) -> tuple[dict[str, int | str] | None, int]:
    """Return the label of each path in a table, and how many rows are repeated; None if it has no labels."""
    wanted = "file_name" if reading.image_column == _USUAL.image_column else reading.image_column
    labels: dict[str, int | str] = {}
    repeated, contradicted = 0, []
    try:
        size = place.size(table)
        if size is None or size > _LARGEST:
            raise ValueError("no such file" if size is None else f"{size:,} bytes, at most {_LARGEST:,} are read")
        columns, rows = (_json_rows if table.lower().endswith("l") else _csv_rows)(place.read(table))
        absent = [each for each in (wanted, reading.label_column) if each not in columns]
        if absent and not reading.labels:
            got = f"got no column {absent[0]} among {first_few(columns, _CLASSES_SHOWN)}"
            tell_once(f"{name}: {table} has no labels of images, {got}; data.label_column names another")
            return None, 0
        if absent:
            setting = "image_column" if absent[0] == wanted else "label_column"
            got = first_few(columns, _CLASSES_SHOWN)
            raise DataError(f"data.{setting}: {where} has no column {absent[0]}, got {got}; name the one")
        for row in rows:
            path = comparable(str(row.get(wanted, "")).replace("\\", "/").removeprefix("./"))
            label = label_of(row.get(reading.label_column), f"image {path:.80}")
            if path not in labels:
                labels[path] = label
            elif labels[path] == label:
                repeated += 1
            else:
                contradicted.append(path)
    except (ValueError, csv.Error) as error:
        raise DataError(
            f"data.labels: {where} cannot be read, got {error}; correct it (its text is UTF-8), or remove it"
        ) from error
    if contradicted or not labels:
        got = f"{len(contradicted):,} rows with another label: {first_few(contradicted, _SHOWN)}"
        raise DataError(
            f"data.labels: {where} needs one label for an image, got {got if labels else 'no row'}; correct it"
        )
    return labels, repeated


def _csv_rows(content: bytes) -> tuple[list[str], Iterator[dict[str, object]]]:
    """Return the columns of a CSV, separated by whatever separates its header, and its rows."""
    text = content.decode("utf-8-sig")
    header = text.lstrip().partition("\n")[0]
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=header.count), strict=True)
    columns = [each.strip() for each in next(filter(None, lines), [])]
    rows = [line for line in lines if any(line)]
    if odd := [line for line in rows if len(line) != len(columns)]:
        raise ValueError(f"{count(len(odd), 'row')} without {len(columns)} values, such as {','.join(odd[0])!r:.80}")
    return columns, (dict(zip(columns, map(str.strip, line), strict=True)) for line in rows)


def _json_rows(content: bytes) -> tuple[list[str], Iterator[dict[str, object]]]:
    """Return the keys of the first of some lines of JSON, and all of them."""
    values = (foreign_json_value(line) for line in content.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip())
    first: object = next(values, {})
    rows = chain([first], values)
    if not isinstance(first, dict):
        raise ValueError(f"{first!r:.80} in place of an object")
    return list(first), (row if isinstance(row, dict) else {} for row in rows)


def _images_by_name(names: Collection[str], files: list[str], prefix: str) -> dict[str, str]:
    """Return the image that each name means, a path from the folder ``prefix`` or a short form of one path alone."""
    exact = {comparable(file[len(prefix) :]): file for file in files}
    if all(name in exact for name in names):
        return exact
    short: dict[str, set[str]] = defaultdict(set)
    for path, file in exact.items():
        within = path.partition("/")[2] if is_split(folder_word(path)) else path
        for each in (within, posixpath.splitext(path)[0], posixpath.splitext(within)[0]):
            short[each].add(file)
    return {name: next(iter(meant)) for name, meant in short.items() if len(meant) == 1} | exact
