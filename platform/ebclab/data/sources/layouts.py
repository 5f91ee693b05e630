"""Published datasets that are read as their users unpack them: how the images of each are listed.

`PUBLISHED` in `catalogue.py` shows the files of each. The key of an image is the hash of its name, independent of other
images.

**ImageNet-1k, ImageNet-100 and Tiny ImageNet** have a folder of images for each WordNet number (wnid), which is the
class. ImageNet is as in ILSVRC 2012 (Russakovsky et al., 2015) or as Kaggle packs it. Classes have the order of their
wnids. The name of an image is that of its file, so that ImageNet-100 and both ways to store the validation images have
the keys of ImageNet.

**Caltech-101** (Fei-Fei, Fergus and Perona, 2004) has a folder of photographs for each of 101 classes and the
background. No split was published. Thirty images of each class train and all others test, as in Kornblith et al.
(2019), table 1, who count the background as a class. Which thirty: those whose keys have the smallest hash, the same
for everybody.

**Flowers-102** (Nilsback and Zisserman, 2008) has its labels and splits in two MATLAB files. Training images are the
published training and validation parts together, ``trnid`` and ``valid`` (1,020 each), test images are ``tstid``
(6,149), as in Kornblith et al. (2019), table 1. Some published code has training and test part the other way round,
since the larger one looks like the training part; its accuracies are not those of this split.

**SUN397** (Xiao et al., 2010) has photographs of 397 kinds of scenes; of its ten published splits the first is read.

**STL-10** (Coates, Ng and Lee, 2011) has 96x96 colour images in binary files, column by column: an image is 3 planes of
96 columns of 96 bytes, so that the axes of a plane must be exchanged. Labels are bytes from 1 to 10. ``stl10:`` is the
labelled part. ``stl10-unlabelled:`` trains on the 100,000 unlabelled images and then the 5,000 training images, none
with a label; its test images are the same.

**PASCAL VOC** has photographs of any size, each with any number of labels. A class that is difficult to see in an image
counts neither for nor against it (Everingham et al., 2010, section 4.1). Lists of a class have lines "000005 1": 1 the
image shows one, -1 none, 0 difficult ones alone. Annotations, the same facts, are read where a split has no lists.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from xml.etree import ElementTree

import torch
from torch import Tensor

from ebclab.data.hashing import hash_words
from ebclab.data.image_set import digest_of_files
from ebclab.data.photograph import Decoded, Example, Reading
from ebclab.data.sources.catalogue import PUBLISHED, Published, Split
from ebclab.data.sources.image_source import ImageFiles, ImageSource, Listing, RowIndex
from ebclab.data.sources.location import hash_of_path, tell_once
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_Opener = Callable[[str, Location, Split, Reading], ImageSource]
_LARGEST_LIST = 64 << 20  # bytes of a file that lists images or classes; ImageNet's has 2.6 million
_FOLDERS_TRIED = 50

_JPEG = (".jpeg", ".jpg")
_KAGGLE = "ILSVRC/Data/CLS-LOC/"
_SOLUTION = "LOC_val_solution.csv"
_WNID = re.compile(r"n\d{8}")
_CLASSES = 1000
_LISTING_THREADS = 8  # they wait for storage

TRAINING_IMAGES = 30
"""Images of each class of Caltech-101 that are trained on."""

(_CALTECH,), _CALTECH_CLASSES = PUBLISHED["caltech101"].needs["train"], 102
_SPLIT_SALT = 0x63616C74656368  # names this use of the keys

_FLOWERS = 102
_LARGEST_MATLAB = 64 << 10  # bytes; the larger of the two has 15 thousand
_FLOWER_PARTS: dict[Split, tuple[str, ...]] = {"train": ("trnid", "valid"), "test": ("tstid",)}

_SUN_LISTS = {split: file for split, (file,) in PUBLISHED["sun397"].needs.items()}
_SUN_CLASSES = "Partitions/ClassName.txt"

_TRAIN, _TEST, _UNLABELLED = "train_X.bin", "test_X.bin", "unlabeled_X.bin"
_SHAPE = (3, 96, 96)
_IMAGE_BYTES = 3 * 96 * 96

_MAIN = "ImageSets/Main"
_VOC_LISTS = {split: file.removesuffix(".txt") for split, (file,) in PUBLISHED["voc"].needs.items()}
_ID = re.compile(r"[A-Za-z0-9_-]+")
_CLASS = re.compile(rf"{_MAIN}/([A-Za-z0-9_-]+)_trainval\.txt")
_MARKS = {"1": 1, "-1": 0, "0": -1}
_LARGEST_XML = 1 << 20  # bytes
_DEEPEST = 16  # elements within elements


def open_layout(layout: Published, name: str, path: str, split: Split, reading: Reading) -> ImageSource:
    """Return one split of the dataset at ``path``; warns if it does not have the published number of images."""
    place = Location(path)
    if not place.has(""):
        raise DataError(f"data.name: no such folder, got {place.path}\n{layout.instructions}")
    if not any(map(place.has, layout.needs["train"])):
        near = _folder_nearby(place, layout.needs["train"])
        hint = f"; did you mean {layout.name}:{near}?" if near else ""
        absent = " or ".join(layout.needs["train"])
        raise DataError(
            f"data.name: {layout.name} is not in {place.path}, got no {absent}{hint}\n{layout.instructions}"
        )
    if not any(map(place.has, layout.needs[split])):
        absent = " or ".join(layout.needs[split])
        raise DataError(
            f"data.name: {name} has no {split} images, got no {absent} in {place.path}\n{layout.instructions}"
        )
    source = OPENERS[layout.name](name, place, split, reading)
    if (got := len(source.index)) != (published := layout.num_images[split]):
        tell_once(f"{name}: {published:,} {split} images are published, got {got:,}")
    return source


def layout_splits(layout: Published, path: str) -> tuple[Split, ...]:
    """Return which splits the dataset at ``path`` has."""
    return ("train", "test") if any(map(Location(path).has, layout.needs["test"])) else ("train",)


def _folder_nearby(place: Location, needs: tuple[str, ...]) -> str | None:
    """Return a folder in ``place``, or above it, that holds one of ``needs``; None if there is none."""
    for folder in islice(place.folders(), _FOLDERS_TRIED):
        if any(place.has(f"{folder}/{need}") for need in needs):
            return f"{place.path}/{folder}"
    above = Path(place.path).parent
    return str(above) if place.is_local and any((above / need).exists() for need in needs) else None


def _bounded_file(place: Location, file: str, largest: int, kind: str = "a file") -> bytes:
    size = place.size(file)
    if size is None or size > largest:
        got = "none" if size is None else f"{size:,} bytes"
        raise DataError(
            f"{place.path}/{file}: {kind} of at most {largest:,} bytes is needed, got {got}; unpack it again"
        )
    return place.read(file)


def _lines_of(place: Location, file: str) -> list[str]:
    """Return the lines of a file that lists images or classes, without blank ones."""
    content = _bounded_file(place, file, _LARGEST_LIST, "a list").decode(errors="replace")
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{place.path}/{file}: a list is needed, got an empty file; unpack it again")
    return lines


def _require_files(place: Location, wanted: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the files that a list names, in its order, from those of all files."""
    if len(set(wanted)) < len(wanted):
        twice = Counter(wanted).most_common(1)[0][0]
        raise DataError(f"data.name: the list of images in {place.path} names {twice} twice; unpack the archive again")
    if absent := [file for file in wanted if file not in sizes]:
        raise DataError(
            f"data.name: {place.path} lacks {len(absent):,} images, got no {absent[0]}; unpack the archive again"
        )
    return {file: sizes[file] for file in wanted}


def _numbered(class_names: tuple[str, ...], classes: list[str], where: str) -> list[int]:
    """Return the number of each image's class; ``where`` names the classes, for the message."""
    numbers = {name: number for number, name in enumerate(class_names)}
    if unknown := sorted(set(classes) - set(numbers)):
        raise DataError(f"{where}: an image must be of one of {len(numbers)} classes, got {unknown[0]!r:.80}")
    return [numbers[name] for name in classes]


# ImageNet and its parts
def classes_of_imagenet100() -> tuple[str, ...]:
    """Return the hundred wnids of Tian, Krishnan and Isola (2019), in the order of their numbers."""
    text = (resources.files("ebclab.data.sources") / "imagenet100.txt").read_text(encoding="utf-8")
    return tuple(sorted(line for line in text.splitlines() if _WNID.fullmatch(line)))


def _list_imagenet(place: Location, split: Split, *, hundred: bool = False) -> Listing:
    root = "" if place.has("train") else _KAGGLE
    folders, where = place.folders(f"{root}train"), f"{place.path}/{root}train"
    if hundred:
        class_names = classes_of_imagenet100()
        if absent := sorted(set(class_names) - set(folders)):
            raise DataError(
                f"{where}: lacks {len(absent)} of the 100 classes, got no {absent[0]}; unpack the tar of "
                "each class into a folder of its name"
            )
    else:
        class_names = tuple(folders)
        if odd := [name for name in folders if not _WNID.fullmatch(name)]:
            raise DataError(f"{where}: its folders must be classes such as n01440764, got {odd[0]}; move it away")
        if len(folders) != _CLASSES:
            raise DataError(
                f"{where}: ImageNet has {_CLASSES:,} classes, got folders of {len(folders):,}; unpack "
                f"the tar of each class into a folder of its name, or read a part of it by folder:{place.path}"
            )
    folder = f"{root}{'train' if split == 'train' else 'val'}"
    if place.has(f"{folder}/{class_names[0]}"):
        with ThreadPoolExecutor(_LISTING_THREADS) as pool:
            of_classes = list(pool.map(lambda wnid: place.sizes(_JPEG, f"{folder}/{wnid}"), class_names))
        sizes = {file: size for each in of_classes for file, size in each.items()}
        labels = [label for label, each in enumerate(of_classes) for _ in each]
    else:
        solution = _read_solution(place, folder)
        wanted = sorted(name for name, wnid in solution.items() if wnid in set(class_names))
        sizes = _require_files(place, [f"{folder}/{name}.JPEG" for name in wanted], place.sizes(_JPEG, folder))
        labels = _numbered(class_names, [solution[name] for name in wanted], _SOLUTION)
    return Listing(sizes, [_file_name(file) for file in sizes], labels, class_names)


def _read_solution(place: Location, folder: str) -> dict[str, str]:
    """Return the class of each validation image from Kaggle's table: "name,wnid x y x y wnid x y x y ..."."""
    if not place.has(_SOLUTION):
        raise DataError(
            f"{place.path}/{folder}: the images are not in class folders, and there is no {_SOLUTION} in {place.path}; "
            "put Kaggle's table there, or move each image into the folder of its class (the devkit's "
            "ILSVRC2012_validation_ground_truth.txt counts classes in the order of its meta.mat, and is not read)"
        )
    classes = {}
    for number, line in enumerate(_lines_of(place, _SOLUTION)[1:], start=2):
        name, _, boxes = line.partition(",")
        wnid = boxes.partition(" ")[0]
        if not re.fullmatch(r"\w+", name) or not _WNID.fullmatch(wnid):
            raise DataError(f"{place.path}/{_SOLUTION}: line {number} must be an image and a class, got {line!r:.80}")
        classes[name] = wnid
    return classes


def _list_tiny_imagenet(place: Location, split: Split) -> Listing:
    class_names = tuple(_lines_of(place, "wnids.txt"))
    if odd := [name for name in class_names if not _WNID.fullmatch(name)]:
        raise DataError(f"{place.path}/wnids.txt: each line must be a class such as n02124075, got {odd[0]!r:.80}")
    if split == "train":
        sizes = {file: size for file, size in place.sizes(_JPEG, "train").items() if "/images/" in file}
        classes = [file.split("/")[1] for file in sizes]
        if absent := sorted(set(class_names) - set(classes)):
            raise DataError(f"{place.path}/train: lacks {len(absent)} classes, got no {absent[0]}; unpack it again")
    else:
        table = [line.split("\t") for line in _lines_of(place, "val/val_annotations.txt")]
        if odd_rows := [row for row in table if len(row) < 2 or not re.fullmatch(r"\w+\.JPEG", row[0])]:
            where = f"{place.path}/val/val_annotations.txt"
            raise DataError(f"{where}: each line must be an image and its class, got {odd_rows[0]!r:.80}")
        sizes = _require_files(place, [f"val/images/{row[0]}" for row in table], place.sizes(_JPEG, "val/images"))
        classes = [row[1] for row in table]
    labels = _numbered(class_names, classes, f"{place.path}/wnids.txt")
    return Listing(sizes, [_file_name(file) for file in sizes], labels, class_names)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


# Caltech-101
def _list_caltech(place: Location, split: Split) -> Listing:
    class_names = tuple(place.folders(_CALTECH))
    if len(class_names) != _CALTECH_CLASSES:
        raise DataError(
            f"{place.path}/{_CALTECH}: needs {_CALTECH_CLASSES} folders, 101 classes and BACKGROUND_Google, got "
            f"{len(class_names)}; unpack 101_ObjectCategories.tar.gz again"
        )
    everything = place.sizes((".jpg",), _CALTECH)
    names = {file: file.removeprefix(f"{_CALTECH}/") for file in everything}
    if stray := [file for file, name in names.items() if "/" not in name]:
        raise DataError(f"{place.path}: an image must be in the folder of its class, got {stray[0]}; move it away")
    of_class: dict[str, list[str]] = {name: [] for name in class_names}
    for file, name in names.items():
        of_class[name.partition("/")[0]].append(file)
    chosen, labels = [], []
    for label, files in enumerate(of_class.values()):
        training = _training_part([names[file] for file in files])
        part = [file for file in files if (names[file] in training) == (split == "train")]
        chosen += part
        labels += [label] * len(part)
    return Listing({file: everything[file] for file in chosen}, [names[file] for file in chosen], labels, class_names)


def _training_part(names: list[str]) -> set[str]:
    if not names:
        return set()
    order = torch.argsort(hash_words(_SPLIT_SALT, torch.tensor([hash_of_path(name) for name in names])), stable=True)
    return {names[row] for row in order[:TRAINING_IMAGES].tolist()}


# Flowers-102
def _list_flowers(place: Location, split: Split) -> Listing:
    labels = _numbers(place, "imagelabels.mat", ("labels",))["labels"]
    if odd := [label for label in labels if not 1 <= label <= _FLOWERS]:
        raise DataError(
            f"{place.path}/imagelabels.mat: labels must be from 1 to {_FLOWERS}, got {odd[0]}; fetch it again"
        )
    parts = _numbers(place, "setid.mat", _FLOWER_PARTS[split])
    ids = sorted(chain.from_iterable(parts.values()))
    if odd := [number for number in ids if not 1 <= number <= len(labels)]:
        raise DataError(
            f"{place.path}/setid.mat: images must be from 1 to {len(labels):,}, got {odd[0]}; fetch it again"
        )
    wanted = [f"jpg/image_{number:05d}.jpg" for number in ids]
    sizes = _require_files(place, wanted, place.sizes((".jpg",), "jpg"))
    class_names = tuple(f"class {number}" for number in range(1, _FLOWERS + 1))
    return Listing(sizes, wanted, [labels[number - 1] - 1 for number in ids], class_names)


def _numbers(place: Location, file: str, names: tuple[str, ...]) -> dict[str, list[int]]:
    from scipy.io import loadmat

    content = _bounded_file(place, file, _LARGEST_MATLAB)
    try:
        values = loadmat(io.BytesIO(content), variable_names=names)
        return {name: [int(number) for number in values[name].ravel()] for name in names}
    except Exception as error:  # damaged input raises errors of many kinds
        raise DataError(
            f"{place.path}/{file}: must hold numbers called {', '.join(names)}, got {type(error).__name__}: {error}; "
            "fetch it again"
        ) from error


# SUN397
def _list_sun(place: Location, split: Split) -> Listing:
    class_names = tuple(line.strip("/") for line in _lines_of(place, _SUN_CLASSES))
    files = [line.strip("/") for line in _lines_of(place, _SUN_LISTS[split])]
    if odd := [file for file in files if not {"", ".", ".."}.isdisjoint(file.split("/"))]:
        raise DataError(f"{place.path}/{_SUN_LISTS[split]}: each line must be the path of an image, got {odd[0]!r:.80}")
    sizes = _require_files(place, files, place.sizes((".jpg",)))
    labels = _numbered(class_names, [file.rpartition("/")[0] for file in files], f"{place.path}/{_SUN_CLASSES}")
    return Listing(sizes, files, labels, class_names)


# STL-10
class _Stl10Source(ImageSource):
    """One split of STL-10; each image is a group. If ``unlabelled``, all images but those for tests train."""

    class_names = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")

    def __init__(self, name: str, place: Location, split: Split, reading: Reading, *, unlabelled: bool = False) -> None:
        self.name, self.reading, self._place = name, reading, place
        if reading.resize:
            raise DataError(
                f"data.resize: the images of {name} are bytes of 96x96 pixels and keep their size, got "
                f"{reading.resize}; leave it out, views.image_size sets the size of views"
            )
        labelled = _TRAIN if split == "train" else _TEST
        files = [_UNLABELLED, _TRAIN] if unlabelled and split == "train" else [labelled]
        counts = {file: self._count(file) for file in files}
        self._rows = [(file, row) for file, count in counts.items() for row in range(count)]
        self.files_digest = digest_of_files({file: count * _IMAGE_BYTES for file, count in counts.items()})
        self.index = RowIndex.grouped(
            torch.cat([hash_words(hash_of_path(file), torch.arange(count)) for file, count in counts.items()]),
            torch.full((len(self._rows),), -1) if len(files) > 1 else self._labels(labelled, counts[labelled]),
        )
        self.example = Example(f"{place.path}/{files[0]}", _SHAPE)

    def read(self, group: int, places: Tensor) -> Decoded:
        import pyarrow as pa

        file, row = self._rows[group]
        try:
            with self._place.filesystem.open_input_file(self._place.inner_path(file)) as opened:
                content = opened.read_at(_IMAGE_BYTES, row * _IMAGE_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise self._place.storage_error(error, file) or self._damage(file, error) from error
        if len(content) != _IMAGE_BYTES:
            raise self._damage(file, f"{len(content)} bytes of image {row}")
        image = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(_SHAPE).mT
        return Decoded(image.expand(len(places), *_SHAPE), torch.ones(len(places), dtype=torch.bool), [])

    def _count(self, file: str) -> int:
        size = self._place.size(file)
        if not size or size % _IMAGE_BYTES:
            got = "none" if size is None else f"{size:,} bytes"
            raise self._damage(file, f"{got}, expected a multiple of {_IMAGE_BYTES:,}")
        return size // _IMAGE_BYTES

    def _labels(self, images: str, count: int) -> Tensor:
        """Return the labels (n,) of a file of images, from 0."""
        file = images.replace("_X", "_y")
        size = self._place.size(file)
        if size != count:
            got = "none" if size is None else f"{size:,} bytes"
            raise self._damage(file, f"{got}, expected a label for each of {count:,} images")
        labels = torch.frombuffer(bytearray(self._place.read(file)), dtype=torch.uint8).long() - 1
        low, high, most = int(labels.min()) + 1, int(labels.max()) + 1, len(self.class_names)
        if low < 1 or high > most:
            raise self._damage(file, f"labels from {low} to {high}, expected 1 to {most}")
        return labels

    def _damage(self, file: str, got: object) -> DataError:
        return DataError(
            f"{self._place.path}/{file}: not a file of STL-10, got {got}; unpack stl10_binary.tar.gz again"
        )


# PASCAL VOC
def _list_voc(place: Location, split: Split) -> Listing:
    """Return the images of a split; "train" is trainval, which has all classes."""
    files = place.sizes((".txt", ".jpg", ".xml"))
    images = _named_images(place, split)
    sizes = _require_files(place, [f"JPEGImages/{image}.jpg" for image in images], files)
    listed = {match[1] for file in files if (match := _CLASS.fullmatch(file))}
    training = {} if listed else _annotations(place, files, _named_images(place, "train"))
    classes = tuple(sorted(listed or {name for marks in training.values() for name in marks}))
    marks = _marks(place, files, images, classes, split)
    return Listing(sizes, list(sizes), torch.full((len(images),), -1), classes, marks)


def _named_images(place: Location, split: Split) -> list[str]:
    return [fields[0] for fields in _fields(place, f"{_VOC_LISTS[split]}.txt", 1)]


def _marks(place: Location, files: dict[str, int], images: list[str], classes: tuple[str, ...], split: Split) -> Tensor:
    """Return which image has which class, (n, K) int8, from the lists of classes or from annotations."""
    name = _VOC_LISTS[split].removeprefix(f"{_MAIN}/")
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
    for number, line in enumerate(_lines_of(place, file), start=1):
        fields = line.split()
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


class _Annotation(ElementTree.TreeBuilder):
    """Elements without a document type, and with it entities, which could name other files or grow without end."""

    depth = 0

    def doctype(self, *_: object) -> None:
        raise ValueError("a document type, which an annotation has not")

    def start(self, tag: str, attributes: dict[str, str], /) -> ElementTree.Element:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} elements within each other")
        return super().start(tag.rpartition("}")[2], attributes)  # without a namespace

    def end(self, tag: str, /) -> ElementTree.Element:
        self.depth -= 1
        return super().end(tag.rpartition("}")[2])


def read_annotation(content: bytes) -> dict[str, int]:
    """Return the classes of the objects of an image: 1, or -1 where all objects of a class are difficult.

    The XML is an ``annotation`` of ``object``s with ``name`` and, where it is 1, ``difficult``.
    """
    try:
        root = ElementTree.fromstring(content, ElementTree.XMLParser(target=_Annotation()))
    except (ElementTree.ParseError, LookupError) as error:  # the latter of an unknown encoding
        raise ValueError(f"no XML ({error})") from error
    marks: dict[str, int] = {}
    for each in root.iterfind("object") if root.tag == "annotation" else ():
        if not (name := each.findtext("name", "").strip()):
            raise ValueError("an object without a name")
        is_difficult = each.findtext("difficult", "").strip() == "1"
        marks[name] = max(marks.get(name, -1), -1 if is_difficult else 1)
    return marks


def _files(list_images: Callable[[Location, Split], Listing]) -> _Opener:
    """Return what opens a split of a set with one file an image, from what lists them."""
    return lambda name, place, split, reading: ImageFiles(name, place, split, reading, list_images(place, split))


OPENERS: Mapping[str, _Opener] = {
    "tiny-imagenet": _files(_list_tiny_imagenet),
    "imagenet": _files(_list_imagenet),
    "imagenet100": _files(partial(_list_imagenet, hundred=True)),
    "flowers102": _files(_list_flowers),
    "caltech101": _files(_list_caltech),
    "sun397": _files(_list_sun),
    "voc": _files(_list_voc),
    "stl10": _Stl10Source,
    "stl10-unlabelled": partial(_Stl10Source, unlabelled=True),
}
"""What opens a split of each set of `PUBLISHED`."""
