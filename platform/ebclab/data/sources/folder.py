"""Image folders: every sub-folder is a class, every image's key is the hash of its path within the folder.

Labels may be in a table beside images: ``metadata.csv`` and ``metadata.jsonl`` as Hugging Face's ImageFolder reads
them, or the file that ``data.labels`` names. A table names images by their paths from its folder. It may leave out
their suffix, or the folder of their split, where this leaves no doubt.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from ebclab.data.class_labels import Labels, comparable, label_of, of_values, of_words
from ebclab.data.image_set import digest_of_files
from ebclab.data.photograph import NO_JPEG_XL, Reading, image_suffixes
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.image_source import ImageFiles, Listing
from ebclab.data.sources.location import (
    by_suffix,
    files_of_split,
    folder_word,
    hash_of_path,
    is_by_product,
    is_split,
    location_of,
    parts_within,
    remedy,
    splits_among,
    tell_once,
    tell_unlabelled,
)
from ebclab.errors import DataError
from ebclab.formatting import count, first_few, how_to_install
from ebclab.storage.filesystem import Location
from ebclab.storage.reading import foreign_json_value

_TABLES = ("metadata.csv", "metadata.jsonl")
_LARGEST = 256 << 20  # bytes of a table; ImageNet's would have 60 million
_DELIMITERS = ",;\t|"
_CLASSES_SHOWN = 10
_SHOWN = 3  # images
_USUAL = Reading()


class FolderSource(ImageFiles):
    """One split of an image folder, local or in an object store, which may hold sub-folders train and test.

    Images have the labels of a table; without one, images in sub-folders get the first sub-folder's number among all in
    alphabetical order, others the label -1.
    """

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        place = Location(path)
        sizes, tables, others = _files_in(place, reading.labels)
        if not sizes:
            raise DataError(
                f"data.name: no images in {place.path}, got no file that ends in .png, .jpg or another suffix "
                f"that Pillow decodes{f', only {others}' if others else ''}; {remedy(others)}"
            )
        if others:
            hint = "; data.labels=FILE reads labels from a table" if " .csv" in others and not reading.labels else ""
            hint += f"; for .heic, {how_to_install('heic')}" if re.search(r" \.hei[cf]\b", others) else ""
            hint += f"; {NO_JPEG_XL}" if " .jxl" in others else ""
            tell_once(f"{name}: files that are not read as images were left out: {others}{hint}")
        chosen = files_of_split(list(sizes), split, name, folder_word)
        if list(chosen.values()) == list(sizes):  # there are no splits
            _require_no_parts_below(list(chosen), name)
            if doubtful := sorted({top for file in chosen if is_split(top := folder_word(file))}):
                tell_once(
                    f"{name}: {' and '.join(doubtful)} are read as classes, since the other folders are not splits"
                )
        labels = _labels_in_tables(name, place, tables, sizes, chosen, reading)
        if labels is None:
            labels = of_words(path.partition("/")[0] if "/" in path else "" for path in chosen.values())
            tell_unlabelled(name, split, labels.numbers)
            _tell_folders_below(name, chosen.values())
        listing = Listing({file: sizes[file] for file in chosen}, [*chosen.values()], labels.numbers, labels.names)
        super().__init__(name, place, split, reading, listing)
        self.files_digest = digest_of_files({path: sizes[file] for file, path in chosen.items()})


def folder_splits(path: str) -> tuple[Split, ...]:
    """Return which splits the images in a folder have."""
    return splits_among(list(_files_in(Location(path))[0]), folder_word)


def files_by_key(name: str, split: Split) -> dict[int, str]:
    """Return the path within its folder of each image of a split by its key; empty for datasets of other kinds."""
    found = location_of(name)
    if found is None or found[0] != "folder":
        return {}
    files = list(_files_in(Location(found[1]))[0])
    there = splits_among(files, folder_word)
    chosen = files_of_split(files, split if split in there else "train", name, folder_word)
    return {hash_of_path(path): file for file, path in chosen.items()}


def _files_in(place: Location, labels: str = "") -> tuple[dict[str, int], list[str], str]:
    """Return the sizes in bytes of the images in a folder by path, tables of labels, and in words the other files."""
    images, tables, suffixes = dict[str, int](), [labels] if labels else [], image_suffixes()
    rest, others = list[str](), Counter({"that are no files, such as links to nothing": place.num_dead()})
    for file, size in place.sizes(("",)).items():
        path = file or place.path
        if is_by_product(file):
            others["in folders of thumbnails or deleted files"] += 1
        elif path.lower().endswith(suffixes):
            images[file] = size
        elif file.rpartition("/")[2].lower() in _TABLES and not labels:
            tables.append(file)
        elif labels and file == labels:
            continue
        elif file.rpartition("/")[2].lower() == "metadata.parquet":
            others["metadata.parquet, whose labels are read from a metadata.csv alone"] += 1
        else:
            rest.append(path)
    return images, tables, by_suffix(rest, others)


def _require_no_parts_below(files: list[str], name: str) -> None:
    """Refuse classes that hold a part for training and one for tests, all of which would be training images."""
    folders = list(dict.fromkeys(file.rpartition("/")[0] for file in files))  # far fewer than files
    if (found := parts_within(folders)) is None:
        return
    above, both = found
    hint = "put the classes into PATH/train and PATH/test"
    if all(folder.startswith(f"{above}/") for folder in folders):
        hint = f"give {name.rstrip('/')}/{above}"
    raise DataError(
        f"data.name: {name} has test images among those for training, got folders {' and '.join(both)}"
        f"{f' in {above}' if above else ''}; {hint if above else 'call them train and test'}"
    )


def _tell_folders_below(name: str, paths: Iterable[str]) -> None:
    """Log once that classes are the first folders in ``paths``, if all images are further below, in several of one.

    Those may be the classes, and the first folders parts of a split, letters, or the archive that held them.
    """
    below: dict[str, set[str]] = defaultdict(set)
    for folder in {path.rpartition("/")[0] for path in paths}:
        top, _, rest = folder.partition("/")
        below[top].add(rest.partition("/")[0])
    inner = set(chain(*below.values()))
    if "" not in inner and max(map(len, below.values()), default=0) > 1:
        classes, others = (first_few(sorted(each), _SHOWN) for each in (below, inner))
        tell_once(f"{name}: classes are the folders {classes}, not the folders within these, {others}")


def _labels_in_tables(
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
        labelled = {image_of[path]: label for path, label in rows.items() if path in image_of}
        if other := [file for file, label in labelled.items() if found.get(file, label) != label]:
            raise DataError(
                f"data.labels: {where} needs the labels of other tables, got another for {first_few(other, _SHOWN)}; "
                "correct one, or remove it"
            )
        found |= labelled
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
    wanted = reading.image_column
    labels: dict[str, int | str] = {}
    repeated, contradicted = 0, []
    try:
        size = place.size(table)
        if size is None:
            raise DataError(
                f"data.labels: {where} cannot be read, got no such file; write its path from the folder of the images"
            )
        if size > _LARGEST:
            raise ValueError(f"{size:,} bytes, at most {_LARGEST:,} are read")
        columns, rows = (_json_rows if table.lower().endswith("l") else _csv_rows)(place.read(table))
        if wanted == _USUAL.image_column and ("file_name" in columns or wanted not in columns):
            wanted = "file_name"
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
