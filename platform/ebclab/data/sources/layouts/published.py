"""Published datasets that are read as their users unpack them: what is known of them without opening one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebclab.data.sources.catalogue import Split

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
From image-net.org, after a registration: unpack ILSVRC2012_img_train.tar, and each of the 1,000 tars in it into a
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
From https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ fetch 102flowers.tgz, imagelabels.mat and setid.mat into PATH
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
Unpack caltech-101.zip of https://data.caltech.edu/records/mzrjq-6wc02, and 101_ObjectCategories.tar.gz in it; PATH
holds
  101_ObjectCategories/accordion/image_0001.jpg ...""",
        ),
        Published(
            "sun397",
            "photographs",
            {"train": 19_850, "test": 19_850},
            {"train": ("Partitions/Training_01.txt",), "test": ("Partitions/Testing_01.txt",)},
            """\
From https://vision.princeton.edu/projects/2010/SUN/ unpack SUN397.tar.gz; PATH is SUN397 in it. Unpack Partitions.zip
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
