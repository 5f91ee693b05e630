"""ImageNet-1k, ImageNet-100 and Tiny ImageNet: a folder of images for each WordNet number (wnid), which is the class.

ImageNet as in ILSVRC 2012 (Russakovsky et al., 2015) or as Kaggle packs it:

PATH/train/n01440764/n01440764_18.JPEG
PATH/val/n01440764/ILSVRC2012_val_00000293.JPEG       sorted into classes, or
PATH/val/ILSVRC2012_val_00000293.JPEG                 all in one folder, with PATH/LOC_val_solution.csv
PATH/ILSVRC/Data/CLS-LOC/train, val                   Kaggle's

Classes have the order of their wnids. The key of an image is the hash of its file's name, so that ImageNet-100 and both
ways to store the validation images have those of ImageNet.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files

from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.layouts.layout import Layout, ListedImages, Listing, lines_of, numbered, require_files
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_JPEG = (".jpeg", ".jpg")
_KAGGLE = "ILSVRC/Data/CLS-LOC/"
_SOLUTION = "LOC_val_solution.csv"
_WNID = re.compile(r"n\d{8}")
_CLASSES = 1000
_LISTING_THREADS = 8  # they wait for storage

IMAGENET_INSTRUCTIONS = """\
From image-net.org, after a registration: unpack ILSVRC2012_img_train.tar, and each of the 1,000 tars in it into a
folder of its name; unpack ILSVRC2012_img_val.tar. Or unpack Kaggle's imagenet-object-localization-challenge. PATH holds
  train/n01440764/n01440764_18.JPEG ...
  val/n01440764/ILSVRC2012_val_00000293.JPEG ..., or
  val/ILSVRC2012_val_00000293.JPEG ... and Kaggle's LOC_val_solution.csv
or what Kaggle's archive holds: ILSVRC/ and LOC_val_solution.csv."""
"""What to put where, for people."""


def classes_of_imagenet100() -> tuple[str, ...]:
    """Return the hundred wnids of Tian, Krishnan and Isola (2019), in the order of their numbers."""
    text = (files("ebclab.data.sources.layouts") / "imagenet100.txt").read_text(encoding="utf-8")
    return tuple(sorted(line for line in text.splitlines() if _WNID.fullmatch(line)))


def _list_imagenet(place: Location, split: Split) -> Listing:
    root = "" if place.has("train") else _KAGGLE
    class_names = tuple(place.folders(f"{root}train"))
    if odd := [name for name in class_names if not _WNID.fullmatch(name)]:
        raise DataError(
            f"{place.path}/{root}train: its folders must be classes such as n01440764, got {odd[0]}; move it away"
        )
    if len(class_names) != _CLASSES:
        raise DataError(
            f"{place.path}/{root}train: ImageNet has {_CLASSES:,} classes, got folders of {len(class_names):,}; unpack "
            f"the tar of each class into a folder of its name, or read a part of it by folder:{place.path}"
        )
    return _listing(place, root, split, class_names)


def _list_imagenet100(place: Location, split: Split) -> Listing:
    root = "" if place.has("train") else _KAGGLE
    class_names = classes_of_imagenet100()
    if absent := sorted(set(class_names) - set(place.folders(f"{root}train"))):
        raise DataError(
            f"{place.path}/{root}train: lacks {len(absent)} of the 100 classes, got no {absent[0]}; unpack the tar of "
            "each class into a folder of its name"
        )
    return _listing(place, root, split, class_names)


def _listing(place: Location, root: str, split: Split, class_names: tuple[str, ...]) -> Listing:
    """Return the images of some classes."""
    folder = f"{root}{'train' if split == 'train' else 'val'}"
    if place.has(f"{folder}/{class_names[0]}"):
        with ThreadPoolExecutor(_LISTING_THREADS) as pool:
            found = list(pool.map(lambda wnid: place.sizes(_JPEG, f"{folder}/{wnid}"), class_names))
        sizes = {file: size for each in found for file, size in each.items()}
        labels = [label for label, each in enumerate(found) for _ in each]
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


_NEEDS = {"needs": ("train", f"{_KAGGLE}train"), "test_needs": ("val", f"{_KAGGLE}val")}

IMAGENET = Layout(
    name="imagenet",
    image="photographs",
    num_images={"train": 1_281_167, "test": 50_000},
    instructions=IMAGENET_INSTRUCTIONS,
    open=partial(ListedImages, listed=_list_imagenet),
    **_NEEDS,
)

IMAGENET100 = Layout(
    name="imagenet100",
    image="photographs",
    num_images={"train": 126_689, "test": 5_000},
    instructions="The folder of imagenet; only the hundred classes of Tian, Krishnan and Isola (2019) need be there.",
    open=partial(ListedImages, listed=_list_imagenet100),
    **_NEEDS,
)

TINY_IMAGENET = Layout(
    name="tiny-imagenet",
    image="64x64x3",
    num_images={"train": 100_000, "test": 10_000},
    needs=("wnids.txt",),
    test_needs=("val/val_annotations.txt",),
    instructions="""\
Unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip; PATH is tiny-imagenet-200 in it, with
  wnids.txt
  train/n02124075/images/n02124075_0.JPEG ...
  val/images/val_0.JPEG ..., val/val_annotations.txt""",
    open=partial(ListedImages, listed=_list_tiny_imagenet),
)
