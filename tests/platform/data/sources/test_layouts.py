"""Sets in the layouts in which they were published: which image has which label, and what a wrong folder is told."""

import io
import logging
import pickle
from pathlib import Path

import made_up_images
import pytest
import torch
from made_up_layouts import (
    SHADES_A_CLASS,
    picture,
    write_caltech,
    write_flowers,
    write_imagenet,
    write_stl10,
    write_sun,
    write_tiny_imagenet,
)
from made_up_voc import TEST, write_voc
from scipy.io import savemat
from torch import Tensor

from ebclab.cli import main
from ebclab.config import compose
from ebclab.config.addresses import LOCATIONS, PUBLISHED
from ebclab.data.image_set import ImageSet, content_digest
from ebclab.data.photograph import Reading
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources import catalogue
from ebclab.data.sources.image_source import read_rows
from ebclab.data.sources.layouts import OPENERS, TRAINING_IMAGES, classes_of_imagenet100, read_annotation
from ebclab.data.sources.load import load_split, open_source, splits_of
from ebclab.errors import ConfigError, DataError
from ebclab.evaluation.features import require_labels
from ebclab.training.setup import classes_of
from energy_contrast.catalog import METHODS

SMALL = Reading(resize=8)
SEVERAL = [f"n{number:08d}" for number in range(3, 3003, 3)]  # a thousand made-up classes


def reds(images: ImageSet) -> Tensor:
    """Return the class that the colour of each image tells."""
    return (images.images[:, 0].float().mean(dim=(1, 2)) / SHADES_A_CLASS).round().long()


WRITERS = {
    **dict.fromkeys(("imagenet", "imagenet100"), write_imagenet),
    **dict.fromkeys(("stl10", "stl10-unlabelled"), write_stl10),
    "tiny-imagenet": write_tiny_imagenet,
    "flowers102": write_flowers,
    "caltech101": write_caltech,
    "sun397": write_sun,
    "voc": write_voc,
}


@pytest.mark.parametrize("name", sorted({*catalogue.PUBLISHED, *OPENERS, *(word[:-1] for word in PUBLISHED)}))
def test_a_published_dataset_is_in_the_catalogue_the_settings_the_readers_the_tests_and_the_docs(name: str) -> None:
    page = (Path(__file__).parents[4] / "docs" / "data.md").read_text(encoding="utf-8")
    missing = {
        "PUBLISHED in data/sources/catalogue.py": name in catalogue.PUBLISHED,
        "PUBLISHED in config/addresses.py": f"{name}:" in PUBLISHED,
        "OPENERS in data/sources/layouts.py": name in OPENERS,
        "WRITERS in this file": name in WRITERS,
        "docs/data.md": f"`{name}:PATH`" in page,
    }
    lacking = [place for place, is_there in missing.items() if not is_there]
    assert not lacking, f"still to come: {'; '.join(lacking)}"
    assert f"{name}:" in LOCATIONS


def test_tiny_imagenet_numbers_classes_as_wnids_txt_and_reads_the_labels_of_validation_images(tmp_path: Path) -> None:
    name = f"tiny-imagenet:{write_tiny_imagenet(tmp_path)}"
    train, test = (load_split(name, None, split, SMALL) for split in ("train", "test"))
    assert train.class_names == ("n02124075", "n01443537")
    assert torch.equal(reds(train), train.labels)
    assert train.labels.bincount().tolist() == [4, 4]
    assert test.labels.tolist() == [1, 0, 1]
    assert torch.equal(reds(test), test.labels)
    assert splits_of(name) == ("train", "test")


def test_imagenet_reads_validation_images_in_folders_and_flat_alike(tmp_path: Path) -> None:
    folders = write_imagenet(tmp_path / "folders", SEVERAL, per_class=1)
    flat = write_imagenet(tmp_path / "flat", SEVERAL, per_class=1, flat=True)
    sorted_test, flat_test = (open_source(f"imagenet:{root}", "test", SMALL) for root in (folders, flat))
    assert sorted_test.class_names == flat_test.class_names == tuple(SEVERAL)
    for source in (sorted_test, flat_test):
        some = source.index.at(torch.arange(0, 1000, 37))
        red = read_rows(source, some).images[:, 0].float().mean(dim=(1, 2)) / SHADES_A_CLASS
        assert torch.equal(red.round().long(), some.labels % 10)
        assert source.index.keys[source.index.labels.argsort()].tolist() == sorted_test.index.keys.tolist()
    assert flat_test.index.labels.tolist() == list(range(999, -1, -1))  # their numbers count from the last class
    kaggle = tmp_path / "kaggle/ILSVRC/Data/CLS-LOC"
    kaggle.parent.mkdir(parents=True)
    flat.rename(kaggle)
    (kaggle / "LOC_val_solution.csv").rename(tmp_path / "kaggle/LOC_val_solution.csv")
    unpacked = open_source(f"imagenet:{tmp_path / 'kaggle'}", "test", SMALL)
    assert torch.equal(unpacked.index.keys, flat_test.index.keys)
    train = open_source(f"imagenet:{tmp_path / 'kaggle'}", "train", SMALL)
    assert train.index.labels.tolist() == list(range(1000))


def test_imagenet_100_takes_its_hundred_classes_from_the_folder_of_imagenet(tmp_path: Path) -> None:
    hundred = classes_of_imagenet100()
    assert len(hundred) == 100
    assert list(hundred) == sorted(set(hundred))
    assert {"n02869837", "n01749939", "n02488291"} < set(hundred)  # the first three of the authors' file
    for flat in (False, True):
        root = write_imagenet(tmp_path / str(flat), sorted({*hundred, *SEVERAL[:20]}), per_class=2, flat=flat)
        train, test = (open_source(f"imagenet100:{root}", split, SMALL) for split in ("train", "test"))
        assert train.class_names == test.class_names == hundred
        assert train.index.labels.tolist() == [label for label in range(100) for _ in range(2)]
        assert sorted(test.index.labels.tolist()) == list(range(100))
    other = write_imagenet(tmp_path / "whole", sorted({*hundred, *SEVERAL[:900]}), per_class=2)
    keys = set(open_source(f"imagenet:{other}", "train", SMALL).index.keys.tolist())
    assert set(train.index.keys.tolist()) < keys


def test_stl10_turns_columns_into_rows_and_labels_count_from_zero(tmp_path: Path) -> None:
    pixels = {part: torch.from_numpy(array) for part, array in write_stl10(tmp_path).items()}
    train, test = (load_split(f"stl10:{tmp_path}", None, split) for split in ("train", "test"))
    assert torch.equal(train.images, pixels["train"])
    assert torch.equal(test.images, pixels["test"])
    assert train.labels.tolist() == [0, 9, 2, 1]
    assert test.labels.tolist() == [9, 0, 4]
    source = pickle.loads(
        pickle.dumps(open_source(f"stl10:{tmp_path}", "train", Reading()))
    )  # as a stream's tasks get it
    assert torch.equal(read_rows(source, source.index.at(torch.tensor([3, 0]))).images, pixels["train"][[3, 0]])
    without = load_split(f"stl10-unlabelled:{tmp_path}", None, "train")
    assert torch.equal(without.images, torch.cat([pixels["unlabeled"], pixels["train"]]))
    assert without.labels.tolist() == [-1] * 9
    assert torch.equal(without.keys[5:], train.keys)
    assert load_split(f"stl10-unlabelled:{tmp_path}", None, "test").labels.tolist() == [9, 0, 4]


def test_flowers_train_on_the_published_training_and_validation_parts(tmp_path: Path) -> None:
    name = f"flowers102:{write_flowers(tmp_path)}"
    train, test = (load_split(name, None, split, SMALL) for split in ("train", "test"))
    assert train.labels.tolist() == [0, 2, 5]
    assert test.labels.tolist() == [1, 3, 4, 6]
    assert torch.equal(reds(train), train.labels + 1)
    assert torch.equal(reds(test), test.labels + 1)


def test_caltech_trains_on_thirty_images_of_each_class_and_tests_on_the_others(tmp_path: Path) -> None:
    root = write_caltech(tmp_path)
    train, test = (open_source(f"caltech101:{root}", split, SMALL).index for split in ("train", "test"))
    assert train.labels.bincount().tolist() == [TRAINING_IMAGES] * 3 + [1] * 99
    assert test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert not set(train.keys.tolist()) & set(test.keys.tolist())
    (root / "101_ObjectCategories/class_050/image_0001.jpg").unlink()
    assert set(open_source(f"caltech101:{root}", "train", SMALL).index.keys.tolist()) < set(train.keys.tolist())


def test_sun_reads_the_first_published_split(tmp_path: Path) -> None:
    name = f"sun397:{write_sun(tmp_path)}"
    train, test = (load_split(name, None, split, SMALL) for split in ("train", "test"))
    assert train.class_names == ("a/abbey", "a/apse/indoor", "z/zoo")
    for part in (train, test):
        assert part.labels.tolist() == [2, 1, 0]
        assert torch.equal(reds(part), part.labels)
    assert not set(train.keys.tolist()) & set(test.keys.tolist())


def _write_some(kind: str, root: Path) -> Path:
    if kind.startswith("imagenet"):
        wnids = list(classes_of_imagenet100()) if kind == "imagenet100" else SEVERAL
        return write_imagenet(root, wnids, per_class=1, flat=True)
    root.mkdir(parents=True, exist_ok=True)
    written = WRITERS[kind](root)
    return root if kind.startswith("stl10") else written


def matlab(**values: list[list[int]]) -> bytes:
    file = io.BytesIO()
    savemat(file, values)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "file", "change", "sentence"),
    [
        ("tiny-imagenet", "wnids.txt", None, "tiny-imagenet is not in .*, got no wnids.txt\nUnpack http"),
        ("tiny-imagenet", "wnids.txt", b"cats\n", "wnids.txt: each line must be a class such as n02124075, got 'cats'"),
        ("tiny-imagenet", "wnids.txt", b"", "wnids.txt: a list is needed, got an empty file"),
        ("tiny-imagenet", "wnids.txt", b"n02124075\n", "must be of one of 1 classes, got 'n01443537'"),
        ("tiny-imagenet", "val/val_annotations.txt", None, "has no test images, got no val/val_annotations.txt"),
        ("tiny-imagenet", "val/val_annotations.txt", b"../x.JPEG\tn02124075\n", "each line must be an image and its"),
        ("tiny-imagenet", "val/images/val_1.JPEG", None, "lacks 1 images, got no val/images/val_1.JPEG"),
        ("tiny-imagenet", "val/images/val_0.JPEG", b"no image", "val_0.JPEG: not a readable image"),
        ("imagenet", "LOC_val_solution.csv", None, "are not in class folders, and there is no LOC_val_solution.csv"),
        ("imagenet", "LOC_val_solution.csv", b"a\nx,cat 1\n", "line 2 must be an image and a class, got 'x,cat 1'"),
        ("imagenet", "train/readme/a.JPEG", b"x", "its folders must be classes such as n01440764, got readme"),
        ("imagenet", "train/n09999999/a.JPEG", b"x", "ImageNet has 1,000 classes, got folders of 1,001"),
        ("imagenet100", "LOC_val_solution.csv", b"a\nx,n02869837 1\n", "lacks 1 images, got no val/x.JPEG"),
        ("stl10", "test_X.bin", None, "has no test images, got no test_X.bin"),
        ("stl10", "test_X.bin", b"x" * 27649, "test_X.bin: not a file of STL-10, got 27,649 bytes, expected a"),
        ("stl10", "test_y.bin", None, "test_y.bin: not a file of STL-10, got none, expected a label for each of 3"),
        ("stl10", "test_y.bin", b"\x00\x01\x0b", "labels from 0 to 11, expected 1 to 10"),
        ("stl10-unlabelled", "unlabeled_X.bin", None, "stl10-unlabelled is not in .*, got no unlabeled_X.bin"),
        ("flowers102", "setid.mat", b"no matlab", "setid.mat: must hold numbers called tstid, got"),
        ("flowers102", "imagelabels.mat", None, "imagelabels.mat: a file of at most 65,536 bytes is needed, got none"),
        ("flowers102", "imagelabels.mat", b"x" * 65537, "imagelabels.mat: a file of at most 65,536 bytes is needed,"),
        ("caltech101", "101_ObjectCategories/another/a.jpg", b"x", "101 classes and BACKGROUND_Google, got 103"),
        ("sun397", "Partitions/Testing_01.txt", b"/a/../../x.jpg\n", "must be the path of an image, got"),
        ("sun397", "Partitions/ClassName.txt", b"/a/abbey\n", "must be of one of 1 classes, got 'a/apse/indoor'"),
        ("tiny-imagenet", "train/n02124075/images/n01443537_1.JPEG", picture(0), "has two train images called n0144"),
        ("tiny-imagenet", "val/val_annotations.txt", b"val_0.JPEG\tn01443537\n" * 2, "val/images/val_0.JPEG twice"),
        ("caltech101", "101_ObjectCategories/tmp.jpg", picture(0), "must be in the folder of its class, got 101_"),
        ("flowers102", "imagelabels.mat", matlab(labels=[[1, 103]]), "labels must be from 1 to 102, got 103"),
        ("flowers102", "imagelabels.mat", matlab(labels=[[1, 2]]), "setid.mat: images must be from 1 to 2, got "),
        ("voc", "ImageSets/Main/test.txt", None, "has no test images, got no ImageSets/Main/test.txt .*\nUnpack"),
        ("voc", "ImageSets/Main/test.txt", "", "test.txt: a list is needed, got an empty file"),
        ("voc", "ImageSets/Main/test.txt", "000500\n000500\n", "names JPEGImages/000500.jpg twice; unpack"),
        ("voc", "ImageSets/Main/test.txt", "../../x\n", "line 1 must be the name of an image, got '../../x'"),
        ("voc", "ImageSets/Main/cat_test.txt", "000500 2\n", "the name of an image and -1, 0 or 1, got '000500"),
        ("voc", "ImageSets/Main/cat_test.txt", "000500 1\n", "must name all images of test.txt, got no 000501"),
        ("voc", "ImageSets/Main/cat_test.txt", None, "every class needs its list .*, got no ImageSets/Main/cat_"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(tmp_path, kind, file, change, sentence):
    root = _write_some(kind, tmp_path / "set")
    (root / file).unlink() if change is None else made_up_images.put(root / file, change)
    with pytest.raises(DataError, match=sentence):
        load_split(f"{kind}:{root}", None, "test", SMALL if "stl10" not in kind else Reading())


def test_a_folder_above_or_below_is_told_the_right_one(tmp_path: Path) -> None:
    root = write_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    for wrong in (tmp_path, root / "train"):
        with pytest.raises(DataError, match=rf"got no wnids.txt; did you mean tiny-imagenet:{root}\?\nUnpack"):
            open_source(f"tiny-imagenet:{wrong}", "train", SMALL)
    with pytest.raises(DataError, match=r"no such folder, got .*/nowhere\nUnpack"):
        open_source(f"tiny-imagenet:{tmp_path}/nowhere", "train", SMALL)


def test_images_of_bytes_refuse_another_size(tmp_path: Path) -> None:
    write_stl10(tmp_path)
    with pytest.raises(DataError, match=r"data.resize: the images of stl10:.* keep their size, got 8"):
        open_source(f"stl10:{tmp_path}", "train", SMALL)


def test_other_than_the_published_number_of_images_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ebclab.data"):
        open_source(f"sun397:{write_sun(tmp_path)}", "train", SMALL)
    assert "19,850 train images are published, got 3" in caplog.text


def test_data_list_says_what_to_put_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "list", "--data-root", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    named = ("imagenet100:PATH", "126,689", "LOC_val_solution.csv", "stl10_binary.tar.gz", "voc:PATH", "JPEGImages")
    named += ("digits", " fetch", "stl10-unlabelled:PATH ", "ebclab data fetch DATASET")
    assert [text for text in named if text not in shown] == []


EXPECTED = torch.tensor([[{1: 1, -1: 0, 0: -1}[mark] for mark in TEST[name]] for name in ("cat", "dog")]).T


@pytest.mark.parametrize("lists", [True, False])
def test_marks_are_those_of_the_lists_or_else_of_the_annotations(tmp_path: Path, lists: bool) -> None:
    name = f"voc:{write_voc(tmp_path, lists=lists)}"
    test = load_split(name, None, "test", SMALL)
    assert test.class_names == ("cat", "dog")
    assert test.marks is not None
    assert torch.equal(test.marks.long(), EXPECTED)
    assert (test.labels == -1).all()
    assert test.images.shape == (10, 3, 8, 8)
    assert (test.images[:, 0].float().mean(dim=(1, 2)).diff() < 0).all()  # in the order of the list
    train = load_split(name, None, "train", SMALL)
    assert train.marks is not None
    assert train.marks[:, 0].tolist() == [1, 0] * 4
    assert splits_of(name) == ("train", "test")


def test_marks_go_where_their_images_go(tmp_path: Path) -> None:
    test = load_split(f"voc:{write_voc(tmp_path)}", None, "test", SMALL)
    rows = test.rows(torch.tensor([3, 0]))
    assert rows.marks is not None
    assert torch.equal(rows.marks.long(), EXPECTED[[3, 0]])
    back = pickle.loads(pickle.dumps(test))
    assert torch.equal(back.marks, test.marks)
    assert test.marks is not None
    changed = test.rows(torch.arange(10))
    assert changed.marks is not None
    changed.marks[0, 0] = 0
    assert content_digest(changed) != content_digest(test)


BOMB = (
    b'<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;">]><annotation><object><name>&y;</name></object></annotation>'
)
OUTSIDE = b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>'


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (BOMB, "a document type, which an annotation has not"),
        (OUTSIDE, "a document type, which an annotation has not"),
        (b"<annotation><object></object></annotation>", "an object without a name"),
        (b"<annotation>", "no XML"),
        (b'<?xml version="1.0" encoding="x-user"?><annotation/>', "no XML .*unknown encoding: x-user"),
        (b"<a>" * 17 + b"</a>" * 17, "more than 16 elements within each other"),
    ],
)
def test_an_annotation_that_is_none_is_refused(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_annotation(content)


def test_an_object_that_is_not_difficult_counts_and_names_of_parts_do_not() -> None:
    both = b"<object><name>cat</name><difficult>1</difficult></object><object><name>cat</name></object>"
    part = b"<object><name>dog &amp; co</name><part><name>tail</name></part><difficult>1</difficult></object>"
    for start in (b"<annotation>", b'<annotation xmlns="http://a.b/c">'):
        assert read_annotation(start + both + part + b"</annotation>") == {"cat": 1, "dog & co": -1}


def test_whatever_needs_one_label_an_image_refuses_such_a_set(tmp_path: Path) -> None:
    name = f"voc:{write_voc(tmp_path)}"
    train = load_split(name, None, "train", SMALL)
    with pytest.raises(DataError, match=r"voc:.*: its images may have several labels each, which only the groups"):
        require_labels(train)
    with pytest.raises(DataError, match="has any number of labels an image, and a Parquet set one"):
        prepare_dataset({"train": train}, tmp_path / "set")
    config = compose("supervised", overrides=[f"data.name={name}", "views.recipe=none", "data.resize=8"])
    with pytest.raises(ConfigError, match="supervised learns from labels, got 8 of 8 training images without"):
        classes_of(config, METHODS["supervised"], train.labels, train.class_names)
