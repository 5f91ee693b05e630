"""Every published dataset that is read where it lies, and how the images of those with one file an image are listed.

**ImageNet-1k, ImageNet-100 and Tiny ImageNet** have a folder of images for each WordNet number (wnid), which is the
class. ImageNet lies as in ILSVRC 2012 (Russakovsky et al., 2015) or as Kaggle packs it:

PATH/train/n01440764/n01440764_18.JPEG
PATH/val/n01440764/ILSVRC2012_val_00000293.JPEG       sorted into classes, or
PATH/val/ILSVRC2012_val_00000293.JPEG                 all in one folder, with PATH/LOC_val_solution.csv
PATH/ILSVRC/Data/CLS-LOC/train, val                   Kaggle's

Classes have the order of their wnids. The key of an image is the hash of its file's name, so that ImageNet-100 and both
ways to store the validation images have those of ImageNet.

**Caltech-101** (Fei-Fei, Fergus and Perona, 2004) has a folder of photographs for each of 101 classes and the
background. No split was published. Thirty images of each class train and all others test, as in Kornblith et al.
(2019), table 1, who count the background as a class. Which thirty: those whose keys have the smallest hash, the same
for everybody.

**Flowers-102** (Nilsback and Zisserman, 2008) has its labels and splits in two MATLAB files. Training images are the
published training and validation parts together, ``trnid`` and ``valid`` (1,020 each), test images are ``tstid``
(6,149), as in Kornblith et al. (2019), table 1. Some published code has training and test part the other way round,
since the larger one looks like the training part; its accuracies are not those of this split.

**SUN397** (Xiao et al., 2010) has photographs of 397 kinds of scenes; of its ten published splits the first is read.
"""

from __future__ import annotations

import io
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from itertools import chain

import torch

from ebclab.data.hashing import hash_words
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.image_source import Listing
from ebclab.data.sources.layouts.layout import Layout, bounded_file, lines_of, listed_by, numbered, require_files
from ebclab.data.sources.layouts.stl10 import TEST, TRAIN, UNLABELLED, Stl10Source
from ebclab.data.sources.layouts.voc import VOC_LISTS, list_voc
from ebclab.data.sources.location import hash_of_path
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_JPEG = (".jpeg", ".jpg")
_KAGGLE = "ILSVRC/Data/CLS-LOC/"
_SOLUTION = "LOC_val_solution.csv"
_WNID = re.compile(r"n\d{8}")
_CLASSES = 1000
_LISTING_THREADS = 8  # they wait for storage
_OF_IMAGENET: dict[Split, tuple[str, ...]] = {"train": ("train", f"{_KAGGLE}train"), "test": ("val", f"{_KAGGLE}val")}

TRAINING_IMAGES = 30
"""Images of each class of Caltech-101 that are trained on."""

_CALTECH, _CALTECH_CLASSES = "101_ObjectCategories", 102
_SPLIT_SALT = 0x63616C74656368  # names this use of the keys

_FLOWERS = 102
_LARGEST_MATLAB = 64 << 10  # bytes; the larger of the two has 15 thousand
_FLOWER_PARTS: dict[Split, tuple[str, ...]] = {"train": ("trnid", "valid"), "test": ("tstid",)}

_SUN_LISTS: dict[Split, str] = {"train": "Partitions/Training_01.txt", "test": "Partitions/Testing_01.txt"}
_SUN_CLASSES = "Partitions/ClassName.txt"


def classes_of_imagenet100() -> tuple[str, ...]:
    """Return the hundred wnids of Tian, Krishnan and Isola (2019), in the order of their numbers."""
    text = (resources.files("ebclab.data.sources.layouts") / "imagenet100.txt").read_text(encoding="utf-8")
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
        sizes = require_files(place, [f"{folder}/{name}.JPEG" for name in wanted], place.sizes(_JPEG, folder))
        labels = numbered(class_names, [solution[name] for name in wanted], _SOLUTION)
    return Listing(sizes, [_file_name(file) for file in sizes], labels, class_names)


def _read_solution(place: Location, folder: str) -> dict[str, str]:
    """Return the class of each validation image from Kaggle's table: "name,wnid x y x y wnid x y x y ..."."""
    if not place.has(_SOLUTION):
        raise DataError(
            f"{place.path}/{folder}: the images lie in no class folders, and there is no {_SOLUTION} in {place.path}; "
            "put Kaggle's table there, or move each image into the folder of its class (the devkit's "
            "ILSVRC2012_validation_ground_truth.txt counts classes in the order of its meta.mat, and is not read)"
        )
    classes = {}
    for number, line in enumerate(lines_of(place, _SOLUTION)[1:], start=2):
        name, _, boxes = line.partition(",")
        wnid = boxes.partition(" ")[0]
        if not re.fullmatch(r"\w+", name) or not _WNID.fullmatch(wnid):
            raise DataError(f"{place.path}/{_SOLUTION}: line {number} must be an image and a class, got {line!r:.80}")
        classes[name] = wnid
    return classes


def _list_tiny_imagenet(place: Location, split: Split) -> Listing:
    class_names = tuple(lines_of(place, "wnids.txt"))
    if odd := [name for name in class_names if not _WNID.fullmatch(name)]:
        raise DataError(f"{place.path}/wnids.txt: each line must be a class such as n02124075, got {odd[0]!r:.80}")
    if split == "train":
        sizes = {file: size for file, size in place.sizes(_JPEG, "train").items() if "/images/" in file}
        classes = [file.split("/")[1] for file in sizes]
        if absent := sorted(set(class_names) - set(classes)):
            raise DataError(f"{place.path}/train: lacks {len(absent)} classes, got no {absent[0]}; unpack it again")
    else:
        table = [line.split("\t") for line in lines_of(place, "val/val_annotations.txt")]
        if odd_rows := [row for row in table if len(row) < 2 or not re.fullmatch(r"\w+\.JPEG", row[0])]:
            where = f"{place.path}/val/val_annotations.txt"
            raise DataError(f"{where}: each line must be an image and its class, got {odd_rows[0]!r:.80}")
        sizes = require_files(place, [f"val/images/{row[0]}" for row in table], place.sizes(_JPEG, "val/images"))
        classes = [row[1] for row in table]
    labels = numbered(class_names, classes, f"{place.path}/wnids.txt")
    return Listing(sizes, [_file_name(file) for file in sizes], labels, class_names)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


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
        raise DataError(f"{place.path}: an image must lie in the folder of its class, got {stray[0]}; move it away")
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
    sizes = require_files(place, wanted, place.sizes((".jpg",), "jpg"))
    class_names = tuple(f"class {number}" for number in range(1, _FLOWERS + 1))
    return Listing(sizes, wanted, [labels[number - 1] - 1 for number in ids], class_names)


def _numbers(place: Location, file: str, names: tuple[str, ...]) -> dict[str, list[int]]:
    from scipy.io import loadmat

    content = bounded_file(place, file, _LARGEST_MATLAB)
    try:
        held = loadmat(io.BytesIO(content), variable_names=names)
        return {name: [int(number) for number in held[name].ravel()] for name in names}
    except Exception as error:  # damaged input raises errors of many kinds
        raise DataError(
            f"{place.path}/{file}: must hold numbers called {', '.join(names)}, got {type(error).__name__}: {error}; "
            "fetch it again"
        ) from error


def _list_sun(place: Location, split: Split) -> Listing:
    class_names = tuple(line.strip("/") for line in lines_of(place, _SUN_CLASSES))
    files = [line.strip("/") for line in lines_of(place, _SUN_LISTS[split])]
    if odd := [file for file in files if not {"", ".", ".."}.isdisjoint(file.split("/"))]:
        raise DataError(f"{place.path}/{_SUN_LISTS[split]}: each line must be the path of an image, got {odd[0]!r:.80}")
    sizes = require_files(place, files, place.sizes((".jpg",)))
    labels = numbered(class_names, [file.rpartition("/")[0] for file in files], f"{place.path}/{_SUN_CLASSES}")
    return Listing(sizes, files, labels, class_names)


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "tiny-imagenet",
            "64x64x3",
            {"train": 100_000, "test": 10_000},
            {"train": ("wnids.txt",), "test": ("val/val_annotations.txt",)},
            """\
Unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip; PATH is tiny-imagenet-200 in it, with
  wnids.txt
  train/n02124075/images/n02124075_0.JPEG ...
  val/images/val_0.JPEG ..., val/val_annotations.txt""",
            listed_by(_list_tiny_imagenet),
        ),
        Layout(
            "imagenet",
            "photographs",
            {"train": 1_281_167, "test": 50_000},
            _OF_IMAGENET,
            """\
From image-net.org, after a registration: unpack ILSVRC2012_img_train.tar, and each of the 1,000 tars in it into a
folder of its name; unpack ILSVRC2012_img_val.tar. Or unpack Kaggle's imagenet-object-localization-challenge. PATH holds
  train/n01440764/n01440764_18.JPEG ...
  val/n01440764/ILSVRC2012_val_00000293.JPEG ..., or
  val/ILSVRC2012_val_00000293.JPEG ... and Kaggle's LOC_val_solution.csv
or what Kaggle's archive holds: ILSVRC/ and LOC_val_solution.csv.""",
            listed_by(_list_imagenet),
        ),
        Layout(
            "imagenet100",
            "photographs",
            {"train": 126_689, "test": 5_000},
            _OF_IMAGENET,
            "The folder of imagenet; only the hundred classes of Tian, Krishnan and Isola (2019) need be there.",
            listed_by(partial(_list_imagenet, hundred=True)),
        ),
        Layout(
            "stl10",
            "96x96x3",
            {"train": 5_000, "test": 8_000},
            {"train": (TRAIN,), "test": (TEST,)},
            """\
Unpack http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz; PATH is stl10_binary in it, with
  train_X.bin, train_y.bin, test_X.bin, test_y.bin, unlabeled_X.bin""",
            Stl10Source,
        ),
        Layout(
            "stl10-unlabelled",
            "96x96x3",
            {"train": 105_000, "test": 8_000},
            {"train": (UNLABELLED,), "test": (TEST,)},
            f"The folder of stl10, trained on without labels, {UNLABELLED} and then {TRAIN}.",
            partial(Stl10Source, unlabelled=True),
        ),
        Layout(
            "flowers102",
            "photographs",
            {"train": 2_040, "test": 6_149},
            {"train": ("setid.mat",), "test": ("setid.mat",)},
            """\
From https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ fetch 102flowers.tgz, imagelabels.mat and setid.mat into PATH
and unpack the first, so that it holds
  jpg/image_00001.jpg ...
  imagelabels.mat, setid.mat""",
            listed_by(_list_flowers),
        ),
        Layout(
            "caltech101",
            "photographs",
            {"train": 3_060, "test": 6_084},
            {"train": (_CALTECH,), "test": (_CALTECH,)},
            """\
Unpack caltech-101.zip of https://data.caltech.edu/records/mzrjq-6wc02, and 101_ObjectCategories.tar.gz in it; PATH
holds
  101_ObjectCategories/accordion/image_0001.jpg ...""",
            listed_by(_list_caltech),
        ),
        Layout(
            "sun397",
            "photographs",
            {"train": 19_850, "test": 19_850},
            {split: (file,) for split, file in _SUN_LISTS.items()},
            """\
From https://vision.princeton.edu/projects/2010/SUN/ unpack SUN397.tar.gz; PATH is SUN397 in it. Unpack Partitions.zip
into a folder Partitions there, so that PATH holds
  a/abbey/sun_aaalbzqrimafwbiv.jpg ...
  Partitions/ClassName.txt, Training_01.txt, Testing_01.txt ...""",
            listed_by(_list_sun),
        ),
        Layout(
            "voc",
            "photographs",
            {"train": 5_011, "test": 4_952},
            {split: (f"{file}.txt",) for split, file in VOC_LISTS.items()},
            """\
Unpack VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar into one folder; PATH is VOCdevkit/VOC2007 in it, with
  JPEGImages/000001.jpg ...
  Annotations/000001.xml ...
  ImageSets/Main/trainval.txt, test.txt, aeroplane_trainval.txt, aeroplane_test.txt ...""",
            listed_by(list_voc),
        ),
    )
}
"""Every layout, by the word with which ``data.name`` begins."""
