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

from ebclab.data.digests import digest_of_files
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Reading, first_example
from ebclab.data.sources.image_source import ImageFiles, RowIndex, Statistics
from ebclab.data.sources.layouts.layout import Layout
from ebclab.data.sources.location import hash_of_path
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_LISTS: dict[Split, str] = {"train": "trainval", "test": "test"}
_MAIN = "ImageSets/Main"
_ID = re.compile(r"[A-Za-z0-9_-]+")
_CLASS = re.compile(rf"{_MAIN}/([A-Za-z0-9_-]+)_trainval\.txt")
_MARKS = {"1": 1, "-1": 0, "0": -1}
_LARGEST_XML = 1 << 20  # bytes
_DEEPEST = 16  # elements within elements


class VocSource(ImageFiles):
    """One split of a set of PASCAL VOC; satisfies ``ImageSource``, with one image a group.

    Args:
        path: The folder that holds JPEGImages and ImageSets, local or in an object store.
        split: "train" is trainval. The classes are those of trainval.
        reading: How images are read.
    """

    statistics: Statistics | None = None

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        self.name, self.reading = name, reading
        self._place = Location(path)
        self._sizes = self._place.sizes((".txt", ".jpg", ".xml"))
        self._names = self._names_of(split)
        self._files = [f"JPEGImages/{image}.jpg" for image in self._names]
        if absent := [file for file in self._files if file not in self._sizes]:
            raise DataError(
                f"data.name: {self._place.path} lacks {len(absent):,} images, got no {absent[0]}; unpack it again"
            )
        self.files_digest = digest_of_files({file: str(self._sizes[file]) for file in self._files})
        listed = {match[1] for file in self._sizes if (match := _CLASS.fullmatch(file))}
        training = {} if listed else self._annotated(self._names_of("train"))
        self.class_names = tuple(sorted(listed or {name for found in training.values() for name in found}))
        groups = torch.arange(len(self._files))
        self.index = RowIndex(
            keys=torch.tensor([hash_of_path(file) for file in self._files]),
            labels=torch.full_like(groups, -1),
            groups=groups,
            places=torch.zeros_like(groups),
            marks=self._marks(_LISTS[split]),
        )
        self.example = first_example(self._contents(range(len(self._files))), reading, self._place.path)

    def _names_of(self, split: Split) -> list[str]:
        file = f"{_MAIN}/{_LISTS[split]}.txt"
        names = [fields[0] for fields in self._lines(file, 1)]
        if not names:
            raise DataError(f"{self._place.path}/{file}: the names of images are needed, got an empty list")
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise DataError(f"{self._place.path}/{file}: must name an image once, got {twice} again; unpack it again")
        return names

    def _marks(self, name: str) -> Tensor:
        """Return which image has which class, (n, K) int8, from the lists of classes or from annotations."""
        files = {each: f"{_MAIN}/{each}_{name}.txt" for each in self.class_names}
        absent = [file for file in files.values() if file not in self._sizes]
        if not self.class_names or (absent and len(absent) < len(files)):
            got = f"no {absent[0]}" if absent else "no class at all"
            raise DataError(f"{self._place.path}: every class needs its list of images, got {got}; unpack it again")
        if absent:
            found = self._annotated(self._names)
            rows = [[found[image].get(each, 0) for each in self.class_names] for image in self._names]
            return torch.tensor(rows, dtype=torch.int8)
        columns = []
        for file in files.values():
            marks = {fields[0]: _MARKS[fields[1]] for fields in self._lines(file, 2)}
            if missing := [image for image in self._names if image not in marks]:
                raise DataError(f"{self._place.path}/{file}: must name all images of {name}.txt, got no {missing[0]}")
            columns.append([marks[image] for image in self._names])
        return torch.tensor(columns, dtype=torch.int8).T.contiguous()

    def _lines(self, file: str, count: int) -> Iterator[list[str]]:
        """Yield the fields of each line: the name of an image and, where ``count`` is 2, its mark."""
        for number, line in enumerate(self._place.read(file).decode(errors="replace").splitlines(), start=1):
            fields = line.split()
            if not fields:
                continue
            if len(fields) != count or not _ID.fullmatch(fields[0]) or (count == 2 and fields[1] not in _MARKS):
                expected = "the name of an image" + (" and -1, 0 or 1" if count == 2 else "")
                raise DataError(f"{self._place.path}/{file}: line {number} must be {expected}, got {line!r:.80}")
            yield fields

    def _annotated(self, names: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return the classes of each image with their marks, as its annotation has them."""
        found = {}
        for image in names:
            file = f"Annotations/{image}.xml"
            if self._sizes.get(file, _LARGEST_XML + 1) > _LARGEST_XML:
                size = f"{self._sizes[file]:,} bytes" if file in self._sizes else "none"
                raise DataError(
                    f"{self._place.path}: without lists of classes each image needs an annotation of at most "
                    f"{_LARGEST_XML:,} bytes, got {size} at {file}"
                )
            try:
                found[image] = read_annotation(self._place.read(file))
            except ValueError as error:
                raise DataError(
                    f"{self._place.path}/{file}: not an annotation, got {error}; unpack it again"
                ) from error
        return found


def read_annotation(content: bytes) -> dict[str, int]:
    """Return the classes of the objects of an image: 1, or -1 where all objects of a class are difficult.

    Document types are refused, and with them entities, which could name other files or grow without end.

    Args:
        content: XML: an ``annotation`` of ``object``s with ``name`` and, where it is 1, ``difficult``.
    """
    path: list[str] = []
    text: list[str] = []
    fields: dict[str, str] = {}
    found: dict[str, int] = {}

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
            found[name] = max(found.get(name, -1), -1 if fields.get("difficult", "0") == "1" else 1)
        path.pop()
        text.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, end, text.append
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError) as error:  # the latter of an unknown encoding
        raise ValueError(f"no XML ({error})") from error
    return found


VOC = Layout(
    name="voc",
    image="photographs",
    num_images={"train": 5_011, "test": 4_952},
    needs=(f"{_MAIN}/{_LISTS['train']}.txt",),
    test_needs=(f"{_MAIN}/{_LISTS['test']}.txt",),
    instructions="""\
Unpack VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar into one folder; PATH is VOCdevkit/VOC2007 in it, with
  JPEGImages/000001.jpg ...
  Annotations/000001.xml ...
  ImageSets/Main/trainval.txt, test.txt, aeroplane_trainval.txt, aeroplane_test.txt ...""",
    open=VocSource,
)
