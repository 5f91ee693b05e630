"""Sets in the layout of PASCAL VOC: photographs of any size, each with any number of labels.

PATH/
  JPEGImages/000005.jpg
  ImageSets/Main/trainval.txt, test.txt     the names of a split's images, one a line
  ImageSets/Main/chair_trainval.txt         "000005 1": 1 the image shows one, -1 none, 0 difficult ones alone
  Annotations/000005.xml                    the same facts; read where a split has no lists of classes

A class that is difficult to see in an image counts neither for nor against it (Everingham et al., 2010, section 4.1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from xml.parsers import expat

import torch
from torch import Tensor

from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.image_source import Listing
from ebclab.data.sources.layouts.layout import require_files
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_MAIN = "ImageSets/Main"
VOC_LISTS: dict[Split, str] = {"train": f"{_MAIN}/trainval", "test": f"{_MAIN}/test"}
"""Lists of the images of each split, without their suffix."""

_ID = re.compile(r"[A-Za-z0-9_-]+")
_CLASS = re.compile(rf"{_MAIN}/([A-Za-z0-9_-]+)_trainval\.txt")
_MARKS = {"1": 1, "-1": 0, "0": -1}
_LARGEST_XML = 1 << 20  # bytes
_DEEPEST = 16  # elements within elements


def list_voc(place: Location, split: Split) -> Listing:
    """Return the images of a split; "train" is trainval, which has all classes."""
    files = place.sizes((".txt", ".jpg", ".xml"))
    images = _images_in(place, split)
    sizes = require_files(place, [f"JPEGImages/{image}.jpg" for image in images], files)
    listed = {match[1] for file in files if (match := _CLASS.fullmatch(file))}
    training = {} if listed else _annotations(place, files, _images_in(place, "train"))
    classes = tuple(sorted(listed or {name for marks in training.values() for name in marks}))
    marks = _marks(place, files, images, classes, split)
    return Listing(sizes, list(sizes), torch.full((len(images),), -1), classes, marks)


def _images_in(place: Location, split: Split) -> list[str]:
    file = f"{VOC_LISTS[split]}.txt"
    names = [fields[0] for fields in _fields(place, file, 1)]
    if not names:
        raise DataError(f"{place.path}/{file}: the names of images are needed, got an empty list")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(f"{place.path}/{file}: must name an image once, got {twice} again; unpack it again")
    return names


def _marks(place: Location, files: dict[str, int], images: list[str], classes: tuple[str, ...], split: Split) -> Tensor:
    """Return which image has which class, (n, K) int8, from the lists of classes or from annotations."""
    name = VOC_LISTS[split].removeprefix(f"{_MAIN}/")
    lists = [f"{_MAIN}/{each}_{name}.txt" for each in classes]
    absent = [file for file in lists if file not in files]
    if not classes or (absent and len(absent) < len(lists)):
        got = f"no {absent[0]}" if absent else "no class at all"
        raise DataError(f"{place.path}: every class needs its list of images, got {got}; unpack it again")
    if absent:
        annotations = _annotations(place, files, images)
        return torch.tensor([[annotations[i].get(each, 0) for each in classes] for i in images], dtype=torch.int8)
    columns = []
    for file in lists:
        marks = {fields[0]: _MARKS[fields[1]] for fields in _fields(place, file, 2)}
        if missing := [image for image in images if image not in marks]:
            raise DataError(f"{place.path}/{file}: must name all images of {name}.txt, got no {missing[0]}")
        columns.append([marks[image] for image in images])
    return torch.tensor(columns, dtype=torch.int8).T.contiguous()


def _fields(place: Location, file: str, count: int) -> Iterator[list[str]]:
    """Yield the fields of each line: the name of an image and, where ``count`` is 2, its mark."""
    for number, line in enumerate(place.read(file).decode(errors="replace").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != count or not _ID.fullmatch(fields[0]) or (count == 2 and fields[1] not in _MARKS):
            expected = "the name of an image" + (" and -1, 0 or 1" if count == 2 else "")
            raise DataError(f"{place.path}/{file}: line {number} must be {expected}, got {line!r:.80}")
        yield fields


def _annotations(place: Location, files: dict[str, int], images: Iterable[str]) -> dict[str, dict[str, int]]:
    annotations = {}
    for image in images:
        file = f"Annotations/{image}.xml"
        if files.get(file, _LARGEST_XML + 1) > _LARGEST_XML:
            size = f"{files[file]:,} bytes" if file in files else "none"
            raise DataError(
                f"{place.path}: without lists of classes each image needs an annotation of at most "
                f"{_LARGEST_XML:,} bytes, got {size} at {file}"
            )
        try:
            annotations[image] = read_annotation(place.read(file))
        except ValueError as error:
            raise DataError(f"{place.path}/{file}: not an annotation, got {error}; unpack it again") from error
    return annotations


def read_annotation(content: bytes) -> dict[str, int]:
    """Return the classes of the objects of an image: 1, or -1 where all objects of a class are difficult.

    The XML is an ``annotation`` of ``object``s with ``name`` and, where it is 1, ``difficult``. Document types are
    refused, and with them entities, which could name other files or grow without end.
    """
    path: list[str] = []
    text: list[str] = []
    fields: dict[str, str] = {}
    marks: dict[str, int] = {}

    def refuse(*_: object) -> None:
        raise ValueError("a document type, which an annotation has not")

    def begin(tag: str, attributes: object) -> None:
        path.append(tag)
        text.clear()
        if len(path) > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} elements within each other")
        if path == ["annotation", "object"]:
            fields.clear()

    def end(tag: str) -> None:
        if path[:-1] == ["annotation", "object"]:
            fields[tag] = "".join(text).strip()
        elif path == ["annotation", "object"]:
            name = fields.get("name", "")
            if not name:
                raise ValueError("an object without a name")
            marks[name] = max(marks.get(name, -1), -1 if fields.get("difficult", "0") == "1" else 1)
        path.pop()
        text.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, end, text.append
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError) as error:  # the latter of an unknown encoding
        raise ValueError(f"no XML ({error})") from error
    return marks
