"""The datasets that ebclab knows: those of the catalogue by name, their files and known copies, and published ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ebclab.config.addresses import absolute, folder_problem
from ebclab.errors import DataError

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Release:
    """A published copy of a dataset's files, recognised by checksum."""

    name: str
    md5: Mapping[str, tuple[str, ...]]  # sums of each file as stored: plain and, if known, compressed
    mean: tuple[float, ...] | None = None  # of channels over the training split, in [0, 1]; None: to be computed
    std: tuple[float, ...] | None = None  # the same, of standard deviations


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalogue."""

    name: str  # the user's name for it
    shape: tuple[int, int, int]  # channels, height and width, pixels
    num_images: Mapping[Split, int]  # of each split of the published dataset
    class_names: tuple[str, ...]  # by label
    licence: str  # terms of use and whom to cite, one line
    folder: str = ""  # of its files below the data root; empty for an embedded dataset
    files: Mapping[Split, tuple[str, ...]] = field(default_factory=lambda: {"train": (), "test": ()})  # no suffixes
    labels_key: str = ""  # of the labels in CIFAR's pickles; empty for IDX files
    releases: tuple[Release, ...] = ()  # known copies of the files


_IDX_FILES: Mapping[Split, tuple[str, ...]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}

_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

_DIGITS = Dataset(
    name="digits",
    shape=(1, 8, 8),
    num_images={"train": 1442, "test": 355},
    class_names=tuple("0123456789"),
    licence="CC BY 4.0; Alpaydin & Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
)

_MNIST = Dataset(
    name="mnist",
    shape=(1, 28, 28),
    num_images={"train": 60_000, "test": 10_000},
    class_names=tuple("0123456789"),
    licence="usually given as CC BY-SA 3.0; LeCun, Cortes & Burges, The MNIST database of handwritten digits",
    folder="MNIST/raw",
    files=_IDX_FILES,
    releases=(
        Release(
            name="official",
            md5={
                "train-images-idx3-ubyte": ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                "train-labels-idx1-ubyte": ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
                "t10k-images-idx3-ubyte": ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
                "t10k-labels-idx1-ubyte": ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
            },
            mean=(0.13066047627384286,),
            std=(0.3081078038564627,),
        ),
    ),
)

_FASHION_MNIST = Dataset(
    name="fashion-mnist",
    shape=(1, 28, 28),
    num_images={"train": 60_000, "test": 10_000},
    class_names=_CLOTHES,
    licence="MIT (Zalando SE); Xiao, Rasul & Vollgraf, Fashion-MNIST, 2017",
    folder="FashionMNIST/raw",
    files=_IDX_FILES,
    releases=(
        Release(
            name="official",
            md5={
                "train-images-idx3-ubyte": ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                "train-labels-idx1-ubyte": ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
                "t10k-images-idx3-ubyte": ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
                "t10k-labels-idx1-ubyte": ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
            },
            mean=(0.2860405969887955,),
            std=(0.3530242445149226,),
        ),
    ),
)

_CIFAR10 = Dataset(
    name="cifar10",
    shape=(3, 32, 32),
    num_images={"train": 50_000, "test": 10_000},
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    licence="none stated; Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    folder="cifar-10-batches-py",
    files={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    labels_key="labels",
    releases=(
        Release(
            name="official",
            md5={
                "data_batch_1": ("c99cafc152244af753f735de768cd75f",),
                "data_batch_2": ("d4bba439e000b95fd0a9bffe97cbabec",),
                "data_batch_3": ("54ebc095f3ab1f0389bbae665268c751",),
                "data_batch_4": ("634d18415352ddfa80567beed471001a",),
                "data_batch_5": ("482c414d41f54cd18b22e5b47cb7c3cb",),
                "test_batch": ("40351d587109b95175f43aff81a1287e",),
            },
        ),
        Release(
            name="rebuilt (116 images from JPEG copies, own order of the test images)",
            md5={
                "data_batch_1": ("a84f1b7bd35e56dbc7e760107775174b", "f72973b9dc884b194bec8517d320c02c"),
                "data_batch_2": ("3e67801f90a94b91a342f02954dc0458", "5b8bcf54e00c53c9ccf0c4048801dcd4"),
                "data_batch_3": ("0abbb35ca3b3bd05d0efb6a6834218a9", "a97fe60a5cb73ef5bfa81f21a7838428"),
                "data_batch_4": ("09f41990057c7a2518c501d409e6bb56", "25d17563fd4c86f8ae3742599eac2b28"),
                "data_batch_5": ("6d68f85cfda34629f49ab8ffb496465b", "f300c4b06c3dade4100ab9a1a8c2770c"),
                "test_batch": ("0809ab9a8b9d8ae39f0b091b40ebadd1", "70445ab489c88ba9ce7266c84ad32ca9"),
            },
            mean=(0.49139969998468136, 0.48215826248468135, 0.44653079082414215),
            std=(0.24702918524135664, 0.24348435361975437, 0.26158689440843597),
        ),
    ),
)

_CIFAR100_CLASSES = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel "
    "can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur "
    "dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion "
    "lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree "
    "pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea "
    "seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table "
    "tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman "
    "worm"
)

_CIFAR100 = Dataset(
    name="cifar100",
    shape=(3, 32, 32),
    num_images={"train": 50_000, "test": 10_000},
    class_names=tuple(_CIFAR100_CLASSES.split()),
    licence="none stated; Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    folder="cifar-100-python",
    files={"train": ("train",), "test": ("test",)},
    labels_key="fine_labels",
    releases=(
        Release(
            name="official",
            md5={"train": ("16019d7e3df5f24257cddd939b257f8d",), "test": ("f0ef6b0ae62326f3e7ffdfab6717acfc",)},
        ),
    ),
)

DATASETS: dict[str, Dataset] = {entry.name: entry for entry in (_DIGITS, _MNIST, _FASHION_MNIST, _CIFAR10, _CIFAR100)}
"""Every dataset by name."""

_OF_IMAGENET: Mapping[Split, tuple[str, ...]] = {
    "train": ("train", "ILSVRC/Data/CLS-LOC/train"),
    "test": ("val", "ILSVRC/Data/CLS-LOC/val"),
}


@dataclass(frozen=True)
class Published:
    """Facts about a published dataset. Of its files or folders in ``needs``, one must exist for it to be recognised."""

    name: str  # prefix of ``data.name``, without the colon
    image: str  # size of its images in words
    num_images: Mapping[Split, int]  # published number of images of each split
    needs: Mapping[Split, tuple[str, ...]]
    instructions: str  # which files to put where, for users


PUBLISHED: dict[str, Published] = {
    published.name: published
    for published in (
        Published(
            "tiny-imagenet",
            "64x64x3",
            {"train": 100_000, "test": 10_000},
            {"train": ("wnids.txt",), "test": ("val/val_annotations.txt",)},
            """\
Unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip; PATH is tiny-imagenet-200 in it, with
  wnids.txt
  train/n02124075/images/n02124075_0.JPEG ...
  val/images/val_0.JPEG ..., val/val_annotations.txt""",
        ),
        Published(
            "imagenet",
            "photographs",
            {"train": 1_281_167, "test": 50_000},
            _OF_IMAGENET,
            """\
From image-net.org, after a registration: unpack ILSVRC2012_img_train.tar, and each of the 1,000 tars in it into a \
folder of its name; unpack ILSVRC2012_img_val.tar. Or unpack Kaggle's imagenet-object-localization-challenge. PATH holds
  train/n01440764/n01440764_18.JPEG ...
  val/n01440764/ILSVRC2012_val_00000293.JPEG ..., or
  val/ILSVRC2012_val_00000293.JPEG ... and Kaggle's LOC_val_solution.csv
or what Kaggle's archive holds: ILSVRC/ and LOC_val_solution.csv.""",
        ),
        Published(
            "imagenet100",
            "photographs",
            {"train": 126_689, "test": 5_000},
            _OF_IMAGENET,
            "The folder of imagenet; only the hundred classes of Tian, Krishnan and Isola (2019) need be there.",
        ),
        Published(
            "stl10",
            "96x96x3",
            {"train": 5_000, "test": 8_000},
            {"train": ("train_X.bin",), "test": ("test_X.bin",)},
            """\
Unpack http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz; PATH is stl10_binary in it, with
  train_X.bin, train_y.bin, test_X.bin, test_y.bin, unlabeled_X.bin""",
        ),
        Published(
            "stl10-unlabelled",
            "96x96x3",
            {"train": 105_000, "test": 8_000},
            {"train": ("unlabeled_X.bin",), "test": ("test_X.bin",)},
            "The folder of stl10, trained on without labels, unlabeled_X.bin and then train_X.bin.",
        ),
        Published(
            "flowers102",
            "photographs",
            {"train": 2_040, "test": 6_149},
            {"train": ("setid.mat",), "test": ("setid.mat",)},
            """\
From https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ fetch 102flowers.tgz, imagelabels.mat and setid.mat into PATH \
and unpack the first, so that it holds
  jpg/image_00001.jpg ...
  imagelabels.mat, setid.mat""",
        ),
        Published(
            "caltech101",
            "photographs",
            {"train": 3_060, "test": 6_084},
            {"train": ("101_ObjectCategories",), "test": ("101_ObjectCategories",)},
            """\
Unpack caltech-101.zip of https://data.caltech.edu/records/mzrjq-6wc02, and 101_ObjectCategories.tar.gz in it; PATH \
holds
  101_ObjectCategories/accordion/image_0001.jpg ...""",
        ),
        Published(
            "sun397",
            "photographs",
            {"train": 19_850, "test": 19_850},
            {"train": ("Partitions/Training_01.txt",), "test": ("Partitions/Testing_01.txt",)},
            """\
From https://vision.princeton.edu/projects/2010/SUN/ unpack SUN397.tar.gz; PATH is SUN397 in it. Unpack Partitions.zip \
into a folder Partitions there, so that PATH holds
  a/abbey/sun_aaalbzqrimafwbiv.jpg ...
  Partitions/ClassName.txt, Training_01.txt, Testing_01.txt ...""",
        ),
        Published(
            "voc",
            "photographs",
            {"train": 5_011, "test": 4_952},
            {"train": ("ImageSets/Main/trainval.txt",), "test": ("ImageSets/Main/test.txt",)},
            """\
Unpack VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar into one folder; PATH is VOCdevkit/VOC2007 in it, with
  JPEGImages/000001.jpg ...
  Annotations/000001.xml ...
  ImageSets/Main/trainval.txt, test.txt, aeroplane_trainval.txt, aeroplane_test.txt ...""",
        ),
    )
}
"""Every such dataset, by the word with which ``data.name`` begins."""

_SUFFIXES = ("", ".gz", ".xz")
"""Suffixes that a stored file may have, preferred ones first."""


def are_photographs(name: str) -> bool:
    """Return whether ``data.name`` is a published dataset of photographs of different sizes."""
    published = PUBLISHED.get(name.partition(":")[0])
    return published is not None and published.image == "photographs"


def data_root(root: str | None) -> Path:
    """Return the absolute folder that holds datasets: ``root``, else $EBCLAB_DATA, else ~/.cache/ebclab."""
    folder = root or os.environ.get("EBCLAB_DATA") or "~/.cache/ebclab"
    if problem := folder_problem(folder):
        raise DataError(f"{'data.root' if root else 'EBCLAB_DATA'}: {problem}")
    return absolute(folder)


def missing_files(dataset: Dataset, root: str | None, *splits: Split) -> list[str]:
    """Return the files of ``splits`` that are missing below ``root``, plain and compressed; empty if all are there."""
    folder = data_root(root) / dataset.folder
    return [name for split in splits for name in dataset.files[split] if find_stored(folder, name) is None]


def find_stored(folder: Path, name: str) -> Path | None:
    """Return the file ``name`` in ``folder``, plain or with a compression suffix, or None when there is none."""
    candidates = (folder / f"{name}{suffix}" for suffix in _SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)
