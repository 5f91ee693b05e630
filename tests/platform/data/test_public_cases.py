"""Datasets as people have them: the form of each comes from a public report of a user of this or another library.

``HELD`` at the end names the report and the tests of every fault that such reports led to, here and in other files.
"""

import logging
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_up_images import encoded, put, put_arrow, put_set, put_tar, table
from PIL import Image

from ebclab.card.images import MeasuredSet
from ebclab.config.sections import DataConfig, EvaluationConfig
from ebclab.data.holdout import Split, held_out, split_images
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import Reading
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.load import load_split, open_source, splits_of
from ebclab.errors import DataError, NoTestPartError
from ebclab.evaluation.evaluate import evaluate_encoder
from ebclab.runs.evaluate import held_out_images, images_of_run
from ebclab.runs.measured_references import pixels_of

COLOURS = {"ant": (200, 20, 20), "bee": (20, 200, 20), "cat": (20, 20, 200), "yak": (200, 200, 200)}
TRAIN, TEST = ["ant", "bee", "cat"] * 8, ["cat", "cat", "ant", "bee", "bee"]
ABC, CAB = ["ant", "bee", "cat"], ["cat", "ant", "bee"]


def picture(what: str, seed: int) -> bytes:
    """An image whose colour tells its class."""
    noise = np.random.default_rng(seed).integers(0, 20, (6, 6, 3), dtype=np.uint8)
    return encoded(noise + np.array(COLOURS.get(what, (99, 99, 99)), np.uint8))


def pictures(shown: list[str]) -> list[bytes]:
    return [picture(what, number) for number, what in enumerate(shown)]


def shown_table(shown: list[str], labels: Any, names: list[str] | None = None, image: str = "image") -> pa.Table:
    return table(pictures(shown), labels, names, image)


def put_shown(kind: str, part: Path, shown: list[str], labels: Any, names: list[str] | None = None) -> None:
    put_set(kind, part, pictures(shown), labels, names)


def parts(name: str) -> tuple[ImageSet, ImageSet]:
    return load_split(name, None, "train"), load_split(name, None, "test")


def by(names: list[str], shown: list[str]) -> list[int]:
    return [names.index(what) for what in shown]


def words(shown: list[str]) -> pa.Array:
    return pa.array(shown).dictionary_encode()


TWO = [what for what in TRAIN if what != "cat"], [what for what in TEST if what != "cat"]
YES = [[what == "bee" for what in part] for part in TWO]
LABELS: dict[str, tuple[str, list[str], Any, Any, Any, list[str]]] = {
    # DeepForest#1147, ultralytics#26192
    "names in another order": ("parquet", ABC, by(ABC, TRAIN), by(CAB, TEST), CAB, ABC),
    "the same, saved": ("arrow", ABC, by(ABC, TRAIN), by(CAB, TEST), CAB, ABC),
    "names of one class more": ("arrow", ABC, by(ABC, TRAIN), by(["yak", *CAB], TEST), ["yak", *CAB], ABC),
    # datasets#4987: labels as words, whole floats and booleans
    "folders": ("folder", [], TRAIN, TEST, [], ABC),
    "words": ("parquet", [], TRAIN, TEST, [], ABC),
    "words of a dictionary": ("parquet", [], words(TRAIN), words(TEST), [], ABC),
    "saved words": ("arrow", [], TRAIN, TEST, [], ABC),
    "saved words of a dictionary": ("arrow", [], words(TRAIN), words(TEST), [], ABC),
    "words and a ClassLabel": ("parquet", [], TRAIN, by(CAB, TEST), CAB, ABC),
    # polars#26435: views, which pyarrow cannot take rows of
    "words as Polars stores them": ("parquet", [], pa.array(TRAIN).cast(pa.string_view()), TEST, [], ABC),
    # names that look alike
    "blanks": ("parquet", [], TRAIN, [f"{what} " for what in TEST], [], ABC),
    "a character without width": ("folder", [], TRAIN, [f"{what}\u200b" for what in TEST], [], ABC),
    "decimal numbers": ("parquet", [], pa.array(by(ABC, TRAIN)).cast(pa.decimal128(20)), by(ABC, TEST), [], []),
    "whole floats": ("parquet", [], [float(each) for each in by(ABC, TRAIN)], by(ABC, TEST), [], []),
    "words in .cls": ("webdataset", [], TRAIN, TEST, [], ABC),
    "numbers in .json": ("webdataset", [], by(ABC, TRAIN), [float(each) for each in by(ABC, TEST)], [], []),
}


@pytest.mark.parametrize("case", LABELS.values(), ids=LABELS)
def test_classes_are_matched_by_name_and_perfect_features_score_all(tmp_path: Path, case: tuple[Any, ...]) -> None:
    kind, train_names, train_labels, test_labels, test_names, names = case
    put_shown(kind, tmp_path / "train", TRAIN, train_labels, train_names or None)
    put_shown(kind, tmp_path / "test", TEST, test_labels, test_names or None)
    train, test = parts(f"{kind}:{tmp_path}")
    assert train.class_names == test.class_names == tuple(names)
    assert sorted(test.labels.tolist()) == sorted(by(ABC, TEST))
    assert open_source(f"{kind}:{tmp_path}", "test", Reading()).index.labels.tolist() == test.labels.tolist()
    config = EvaluationConfig(knn_neighbours=3)
    pixels, seen = pixels_of(Preprocessing(0, train.mean, train.std))
    assert evaluate_encoder(pixels, train, test, seen, config, device="cpu", only=("knn",))["knn"].value == 1.0


@pytest.mark.parametrize("kind", ["parquet", "arrow", "webdataset"])
def test_booleans_are_the_classes_false_and_true(tmp_path: Path, kind: str) -> None:
    for part, shown, labels in zip(("train", "test"), TWO, YES, strict=True):
        put_shown(kind, tmp_path / part, shown, labels)
    train, test = parts(f"{kind}:{tmp_path}")
    assert train.class_names == test.class_names == ("false", "true")
    assert (train.labels.tolist(), test.labels.tolist()) == tuple([*map(int, each)] for each in YES)


@pytest.mark.parametrize(
    "labels",
    [[1.0, math.nan, None], [1, None, None], ["ant", "", None], pa.array(["ant", None, ""]).dictionary_encode()],
)
def test_empty_labels_are_unknown(tmp_path: Path, labels: Any) -> None:
    put_shown("parquet", tmp_path, ["ant"] * 3, labels, ["bee", "ant"] if labels[0] == 1 else None)
    found = load_split(f"parquet:{tmp_path}", None, "train")
    assert (found.labels.tolist(), found.class_names[-1]) == ([len(found.class_names) - 1, -1, -1], "ant")


REFUSED: dict[str, tuple[str, Any, Any, Any, Any, str]] = {
    # ultralytics#26192
    "folder": ("folder", TRAIN, None, ["yak", *TEST[1:]], None, "got yak; known are ant, bee, cat; leave"),
    "number": ("parquet", by(ABC, TRAIN), None, [3, 0, 0, 1, 7], None, "images, got 3, 7; known are 0, 1, 2; leave"),
    "saved": ("arrow", by(ABC, TRAIN), None, [3, 0, 0, 1, 1], None, "images, got 3; known are 0, 1, 2; leave"),
    "in a tar": ("webdataset", by(ABC, TRAIN), None, [3, 0, 0, 1, 1], None, "images, got 3; known are 0, 1, 2; leave"),
    "word": ("webdataset", TRAIN, None, ["yak", *TEST[1:]], None, "images, got yak; known are ant, bee, cat; leave"),
    "name": ("parquet", by(ABC, TRAIN), ABC, [0] * 5, ["yak"], "images, got yak; known are ant, bee, cat; leave"),
    "a name that no training image has": ("parquet", [0] * 24, ABC, [2] * 5, ABC, "images, got cat; known are ant; "),
    "names in one part": ("parquet", TRAIN, None, [0] * 5, None, "got ant, bee, cat in the training part and numbers"),
    "names in the other": ("arrow", by(ABC, TRAIN), None, TEST, None, "got ant, bee, cat in the test part and numbers"),
    "number without a name": ("arrow", by(ABC, TRAIN), ABC[:2], [0] * 5, ABC, "must have a name, got 2 in .*names 2"),
    "broken number": ("parquet", [0.5] * 24, None, [0.0] * 5, None, "must hold whole numbers .*, got Float value 0.5"),
    "a name twice": ("parquet", by(ABC, TRAIN), ABC, [0] * 5, ["ant", "ant"], "names of classes must differ, got ant"),
    "long words": ("parquet", ["x" * 1001] * 24, None, TEST, None, "at most 1,048,576 words of 1,000 characters are"),
    "words and numbers": ("webdataset", ["ant", *[1] * 23], None, TEST, None, "all numbers or all names of .* and ant"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_classes_that_cannot_be_matched_are_refused_by_name(tmp_path: Path, case: tuple[Any, ...]) -> None:
    kind, train_labels, train_names, test_labels, test_names, sentence = case
    put_shown(kind, tmp_path / "train", TRAIN, train_labels, train_names)
    put_shown(kind, tmp_path / "test", TEST, test_labels, test_names)
    with pytest.raises(DataError, match=sentence):
        load_split(f"{kind}:{tmp_path}", None, "test")


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_classes_without_test_images_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """ultralytics#13936, ml-cvnets#90."""
    put_shown(kind, tmp_path / "train", TRAIN, TRAIN)
    put_shown(kind, tmp_path / "test", ["bee", "bee"], ["bee", "bee"])
    assert parts(f"{kind}:{tmp_path}")[1].labels.tolist() == [1, 1]
    assert "2 classes of training images without test images: ant, cat" in caplog.text


def test_names_that_differ_in_their_unicode_form_are_one_class(tmp_path: Path) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    put_shown("folder", tmp_path / "train", ["ant", "ant", "bee"], [composed, apart, "the"])
    put_shown("folder", tmp_path / "test", ["bee", "ant"], ["the", apart])
    train, test = parts(f"folder:{tmp_path}")
    assert train.class_names == test.class_names == (apart, "the")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 1], [0, 1])


def put_partition(folder: Path, value: str, **columns: list[int]) -> None:
    folder = folder / f"label={value}"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"image": pictures(["ant"]), **columns}), folder / "0.parquet")


PARTITIONS: dict[str, tuple[list[tuple[str, list[int] | None]], list[str], list[int]]] = {
    # Daft#2957: a table that was partitioned by its labels
    "words": ([("cat", None), ("ant", None), ("bee", None)], ABC, [0, 1, 2]),
    "escaped": ([("a%2Fb", None), ("é", None)], ["a/b", "é"], [0, 1]),
    "a column goes first": ([("7", None), ("8", [3])], [], [7, 3]),
    # as Spark and pyarrow write it
    "an empty one": ([("cat", None), ("__HIVE_DEFAULT_PARTITION__", None)], ["cat"], [-1, 0]),
    "no split": ([("bullet_train", None), ("cat", None)], ["bullet_train", "cat"], [0, 1]),
}
"""Labels in the names of folders, with labels in a column, and the classes and labels in the order of folders."""


@pytest.mark.parametrize("case", PARTITIONS.values(), ids=PARTITIONS)
def test_labels_in_the_names_of_folders_of_parquet_are_read(tmp_path, caplog, case):
    folders, names, labels = case
    for value, column in folders:
        put_partition(tmp_path / "x=1", value, **({} if column is None else {"label": column}))
    found = open_source(f"parquet:{tmp_path}", "train", Reading())
    assert (found.class_names, found.index.labels.tolist()) == (tuple(names), labels)
    assert len(caplog.records) == (-1 in labels)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [("7", "every label must have a name, got 7"), ("9" * 19, r"needs a whole number .*; rename the folder")],
)
def test_a_folder_whose_name_is_no_class_is_refused(tmp_path: Path, value: str, sentence: str) -> None:
    put_partition(tmp_path / "train", value)
    (tmp_path / "dataset.json").write_text('{"class_names": ["x", "y"], "mean": [0.5], "std": [0.5]}')
    with pytest.raises(DataError, match=sentence):
        load_split(f"parquet:{tmp_path}", None, "train")


def test_a_split_in_the_name_of_a_folder_of_parquet_is_one(tmp_path: Path) -> None:
    for part, value in (("train", "cat"), ("test", "cat"), ("train", "train")):
        put_partition(tmp_path / f"split={part}", value)
    train, test = parts(f"parquet:{tmp_path}")
    assert (train.class_names, len(train), len(test)) == (("cat", "train"), 2, 1)


@pytest.mark.parametrize("shape", ["{}/train-0.parquet", "train/{}/0.parquet"])
def test_folders_of_one_part_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, shape: str) -> None:
    """unslothai#8144: several configurations of a set of the Hub."""
    for number, name in enumerate(["en", "fr"]):
        file = tmp_path / shape.format(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(shown_table(["ant"], [number]), file)
    assert len(load_split(f"parquet:{tmp_path}", None, "train")) == 2
    assert "the files of 2 folders are read as one set: en, fr" in caplog.text
    caplog.clear()
    load_split(f"parquet:{tmp_path / 'en' if shape.startswith('{') else tmp_path / 'train' / 'en'}", None, "train")
    assert "folders" not in caplog.text


def test_files_of_one_part_are_joined_by_the_names_of_their_classes(tmp_path: Path) -> None:
    for number, (names, shown) in enumerate([(ABC, TRAIN), (CAB, TEST), (["bee", "yak"], ["bee", "yak"])]):
        pq.write_table(shown_table(shown, by(names, shown), names), tmp_path / f"{number}.parquet")
    found = load_split(f"parquet:{tmp_path}", None, "train")
    assert found.class_names == ("ant", "bee", "cat", "yak")
    assert found.labels.tolist() == by([*ABC, "yak"], [*TRAIN, *TEST, "bee", "yak"])


TREES: dict[str, tuple[str, str, list[str], int, int]] = {
    "no images": ("folder", "a/0.png a/1.heic a/2.JXL a/3.jxl labels.csv LICENSE", ["a"], 1, 0),
    "thumbnails": ("folder", "train/a/0.png train/a/@eaDir/0.png/T.jpg @eaDir/2.png test/a/3.png", ["a"], 1, 1),
    "training": ("folder", "training/a/0.png training/b/1.png testing/a/2.png", ["a", "b"], 2, 1),
    "Training": ("folder", "Training/a/0.png Testing/a/1.png", ["a"], 1, 1),
    "valid": ("folder", "train/a/0.png valid/a/1.png", ["a"], 1, 1),
    # datasets#3221: the words of Hugging Face's library
    "dev": ("folder", "train/a/0.png dev/a/1.png", ["a"], 1, 1),
    "evaluation": ("parquet", "data/train-0-of-1.parquet data/evaluation-0-of-1.parquet", [], 1, 1),
    "years": ("folder", "train2017/a/0.png val2017/a/1.png", ["a"], 1, 1),
    "three": ("folder", "train/a/0.png val/a/1.png test/a/2.png extra/3.png", ["a"], 1, 1),
    "a class test": ("folder", "test/0.png 1.png", ["test"], 2, 0),
    "a class train": ("folder", "bus/0.png car/1.png train/2.png", ["bus", "car", "train"], 3, 0),
    "classes valid and invalid": ("folder", "valid/0.png invalid/1.png", ["invalid", "valid"], 2, 0),
    "unlabelled images beside": ("folder", "train/a/0.png more/1.png", ["a"], 1, 0),
    # vision#2605: letters, or folds, above the classes
    "folds": ("folder", "f0/a/0.png f0/b/1.png f1/a/2.png f1/b/3.png", ["f0", "f1"], 4, 0),
    "letters": ("folder", "a/airfield/0.png a/bar/1.png z/zoo/2.png", ["a", "z"], 3, 0),
    "parts of classes": ("folder", "a/x/0.png a/y/1.png a/2.png b/x/3.png", ["a", "b"], 4, 0),
    # Compact-Transformers#59
    "a folder above classes": ("folder", "train/0/a/0.png train/0/b/1.png val/0/a/2.png", ["0"], 2, 1),
    # Kaggle's archives, each unpacked into a folder of its name
    "train in train": ("folder", "train/train/a/0.png train/train/b/1.png test/test/a/2.png", ["a", "b"], 2, 1),
    "test1": ("folder", "train/0.png train/1.png test1/2.png", [], 2, 1),
    # datasets#5650, datasets#4015: names of files with the words of parts
    "words in names of images": ("folder", "a/a_test_1.png b/x_train_2.png", ["a", "b"], 2, 0),
    "words in names within parts": ("parquet", "train/a_test_1.parquet test/b_train.parquet", [], 1, 1),
    # marin#2381: test files of the Hub's layout were training files
    "the Hub's": ("parquet", "data/train-0-of-2.parquet data/train-1-of-2.parquet data/test-0-of-1.parquet", [], 2, 1),
    "words in names": ("parquet", "cifar10_train.parquet cifar10_test.parquet", [], 1, 1),
    "words in folders": ("parquet", "cifar-train/0.parquet cifar-valid/0.parquet", [], 1, 1),
    "shards": ("webdataset", "x/train-000.tar x/val-000.tar x/more-000.tar", [], 1, 1),
    # img2dataset#174, datasets#7337
    "packed shards": ("webdataset", "a.tar b.tar.gz c_stats.json", [], 1, 0),
    "other tables": ("parquet", "a.parquet b.pq", [], 1, 0),
}
TOLD = {
    # ultralytics#23358: files of suffixes that are not read, without a word
    "no images": "not read as images were left out: 2 .jxl, 1 without a suffix, 1 .heic, 1 .csv",
    # vision#2831: folders that storage systems put everywhere
    "thumbnails": "left out: 2 in folders of thumbnails or deleted files",
    "three": "files outside of train and test were left out, 2 of 4: extra/3.png, val/a/1.png",
    "a class test": "test are read as classes",
    "a class train": "train are read as classes, since the other folders are not splits",
    "classes valid and invalid": "valid are read as classes",
    "folds": "classes are the folders f0, f1, not the folders within these, a, b",
    "letters": "classes are the folders a, z, not the folders within these, airfield, bar, zoo",
    "a folder above classes": "classes are the folders 0, not the folders within these, a, b",
    "unlabelled images beside": "files outside of train were left out, 1 of 2: more/1.png",
    "shards": "outside of train and val were left out, 1 of 3: x/more-000.tar",
    "packed shards": "files that do not end in .tar were left out: 1 .gz, 1 .json",
    "other tables": "files that do not end in .parquet were left out: 1 .pq",
}


def put_tree(folder: Path, files: list[str]) -> None:
    """Write a file of each kind, with one image in it."""
    for number, file in enumerate(files):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.table({"image": [picture("ant", number)]}), path)
        elif path.suffix == ".tar":
            put_tar(path, [("a.png", picture([*COLOURS][number], number))])
        else:
            put(path, picture("ant", number))


@pytest.mark.parametrize("case", TREES)
def test_splits_and_classes_of_a_tree_are_told_apart(tmp_path, caplog, case):
    (kind, files, names, train_count, test_count), told = TREES[case], TOLD.get(case, "")
    put_tree(tmp_path, files.split())
    name = f"{kind}:{tmp_path}"
    with caplog.at_level(logging.WARNING, "ebclab.data"):
        train = load_split(name, None, "train")
    assert (train.class_names, len(train)) == (tuple(names), train_count)
    assert bool(caplog.records) == bool(told)
    assert told in caplog.text
    assert splits_of(name) == (("train", "test") if test_count else ("train",))
    if test_count:
        test = load_split(name, None, "test")
        assert len(test) == test_count
        assert not {*map(bytes, train.images.numpy())} & {*map(bytes, test.images.numpy())}
    else:
        with pytest.raises(DataError, match="has no test images, got nothing called test, testing, val, valid"):
            load_split(name, None, "test")


def test_saved_splits_have_the_same_names_and_others_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for part, label in (("training", 0), ("Testing", 0), ("unsupervised", 7)):
        put_shown("arrow", tmp_path / part, ["ant"], [label])
    put(tmp_path / "dataset_dict.json", b'{"splits": ["training", "Testing", "unsupervised"]}')
    train, test = parts(f"arrow:{tmp_path}")
    assert (len(train), len(test)) == (1, 1)
    assert splits_of(f"arrow:{tmp_path}") == ("train", "test")
    assert "splits other than training and Testing were left out: unsupervised" in caplog.text


def put_tars(folder: Path, tars: list[str]) -> str:
    """Write tars, each a name, a colon and the names of its members, of which .cls holds cat; return their set."""
    for tar in tars:
        file, _, members = tar.partition(":")
        put_tar(folder / file, [(m, b"cat" if m.endswith("cls") else picture("ant", 0)) for m in members.split()])
    return f"webdataset:{folder}"


FOLDERS_IN_TARS: dict[str, tuple[list[str], list[str], list[int]]] = {
    # refiner#124, tars of torchvision's folders: class folders were not labels
    "classes": (["a.tar:cat/1.png dog/2.png cat/3.png"], ["cat", "dog"], [0, 1, 0]),
    "a tar a class": (["cat.tar:cat/1.png", "dog.tar:dog/2.png"], ["cat", "dog"], [0, 1]),
    "folders that all have": (["a.tar:./x/y/cat/1.png ./x/y/dog/b/2.png ./x/y/3.png"], ["cat", "dog"], [0, 1, -1]),
    "train in train.tar": (["train.tar:train/cat/1.png train/dog/2.png"], ["cat", "dog"], [0, 1]),
    "labels go first": (["a.tar:x/1.png x/1.cls y/2.png"], ["cat"], [0, -1]),
    "one folder is none": (["a.tar:images/1.png images/2.png"], [], [-1, -1]),
    # webdataset#407: the name of a sample ends at its first dot, as in the library
    "dots in names": (["a.tar:img_22.05.png img_22.05.cls été.v1.png été.v1.cls"], ["cat"], [0, 0]),
    "dots in folders": (["a.tar:v1.0/cat.d/1.png v1.0/dog.d/2.png"], ["cat.d", "dog.d"], [0, 1]),
    # datasets#7732, open_clip#480, CLIP_benchmark#47
    "endings in capitals": (["a.tar:x/1.Left.PNG x/1.Left.cls"], ["cat"], [0]),
    "an ending before the suffix": (["a.tar:1.input.png 1.outputs.txt 2.input.png 2.cls"], ["cat"], [-1, 0]),
    "a folder of each part": (["train/0.tar:1.png 1.cls", "test/0.tar:2.png 2.cls"], ["cat"], [0]),
    "a usual ending": (["a.tar:1.png 1.mask.png 1.cls 1.mask.cls"], ["cat"], [0]),
}


@pytest.mark.parametrize("case", FOLDERS_IN_TARS.values(), ids=FOLDERS_IN_TARS)
def test_folders_in_tars_are_classes_where_no_sample_has_a_label(tmp_path, caplog, case):
    tars, names, labels = case
    found = load_split(put_tars(tmp_path, tars), None, "train")
    assert (found.class_names, found.labels.tolist()) == (tuple(names), labels)
    assert ("so their folders are their classes" in caplog.text) == (len(names) == 2)


@pytest.mark.parametrize(
    ("tars", "sentence"),
    [
        (["a.tar:train/cat/1.png test/cat/2.png"], "got folders train and test in its tars; write tars of each part"),
        (["a.tar:x/train/1.png", "b.tar:x/Testing/2.png"], "got folders train and test in its tars"),
        (["a.tar:cat/train/1.png cat/val/1.png dog/3.png"], "got folders train and test in its tars"),
        (["a.tar:1.05.png 1.06.png"], r"sample 1 has several images, .05.png, .06.png; its name ends at the first dot"),
    ],
)
def test_tars_whose_folders_or_names_mislead_are_refused(tmp_path: Path, tars: list[str], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load_split(put_tars(tmp_path, tars), None, "train")


FOLDERS_OF_TESTS: dict[str, tuple[list[str], list[int], str]] = {
    "all classes": (["yak/dog/1.png yak/cat/2.png"], [1, 0], ""),
    "one class": (["test/dog/1.png test/dog/2.png"], [1, 1], ""),
    "one class at the top": (["dog/1.png dog/2.png"], [1, 1], ""),
    "another class": (["yak/1.png yak/2.png"], [-1, -1], "its test images have no labels, its training images have"),
    "no folder": (["1.png 2.png"], [-1, -1], "its test images have no labels, its training images have"),
    "some": (["dog/1.png 2.png"], [1, -1], "1 of 2 test images have no label"),
}


@pytest.mark.parametrize("case", FOLDERS_OF_TESTS.values(), ids=FOLDERS_OF_TESTS)
def test_classes_of_folders_in_tars_are_matched_by_name(tmp_path, caplog, case):
    """DALI#4146."""
    (tests,), labels, told = case
    name = put_tars(tmp_path, ["train.tar:train/cat/1.png train/dog/2.png", f"test.tar:{tests}"])
    assert [part.labels.tolist() for part in parts(name)] == [[0, 1], labels]
    assert told in caplog.text
    assert ("have no label" in caplog.text) == bool(told)


def test_tars_with_labelled_and_unlabelled_samples_tell_how_many(tmp_path, caplog):
    assert load_split(put_tars(tmp_path, ["a.tar:1.png 1.cls 2.png 3.png"]), None, "train").labels.tolist() == [
        0,
        -1,
        -1,
    ]
    assert "2 of 3 train images have no label" in caplog.text


def test_a_sample_without_an_image_is_named_or_left_out_if_asked(tmp_path, caplog):
    """datasets#6880."""
    name = put_tars(tmp_path, ["a.tar:1.png 1.cls 2.cls 3.png 3.cls"])
    with pytest.raises(DataError, match=r"sample 2 has no image .*, only .cls; data.skip_corrupt=true leaves it out"):
        load_split(name, None, "train")
    assert len(load_split(name, None, "train", Reading(skip_corrupt=True))) == 2
    assert "1 members are not files of samples and were left out: 2 (no image)" in caplog.text


def test_a_label_that_is_no_text_is_named(tmp_path: Path) -> None:
    """webdataset#2: an array under .cls."""
    put_tar(tmp_path / "a.tar", [("1.png", picture("ant", 0)), ("1.cls", b"\x80\x04\x95")])
    with pytest.raises(DataError, match=r"sample 1 needs a number or a word in its \.cls, got bytes that are no text"):
        load_split(f"webdataset:{tmp_path}", None, "train")


TABLES: dict[str, tuple[str, dict[str, str], list[str], list[int], str]] = {
    # datasets#4069, #4311, #5463: metadata.csv and metadata.jsonl beside the images; class folders do not count then
    "CSV": ("1.png a/2.png", {"metadata.csv": "file_name,label\n1.png,dog\na/2.png,cat\n"}, ["cat", "dog"], [1, 0], ""),
    "JSON lines": (
        "1.png 2.png 3.png",
        {"metadata.jsonl": '{"file_name": "1.png", "label": 3}\n\n{"file_name": "2.png", "label": 1, "x": []}\n'},
        [],
        [3, 1, -1],
        "labels are those of metadata.jsonl; 1 of 3 images without a row, which have no label: 3.png",
    ),
    "Excel": ("ä.png 2.png", {"metadata.csv": "\ufefflabel;file_name\r\ncat;ä.png\r\n;2.png"}, ["cat"], [-1, 0], ""),
    "from Windows": ("a/1.png", {"metadata.csv": 'file_name\tlabel\n"a\\1.png"\t7.0\n'}, [], [7], ""),
    "in each part": (
        "train/1.png test/1.png",
        {f"{part}/metadata.csv": f"file_name,label\n1.png,{part}" for part in ("train", "test")},
        ["train"],
        [0],
        "labels are those of train/metadata.csv, classes in the order train",
    ),
    "no label in it": (
        "a/1.png b/2.png",
        {"metadata.csv": "file_name,text\na/1.png,x"},
        ["a", "b"],
        [0, 1],
        "metadata.csv has no labels of images, got no column label among file_name, text; data.label_column names",
    ),
    "odd rows": (
        "1.png 2.png 3.png",
        {"metadata.csv": "file_name,label\n1.png,b\n1.png,b\n9.png,a\n2.png,c"},
        ["b", "c"],
        [0, 1, -1],
        "classes in the order b, c; 1 row of metadata.csv repeated; 1 row of metadata.csv for no image: 9.png; "
        "1 of 3 images without a row",
    ),
    # Kaggle's labels.csv and train.csv name images by ids, without their suffix and folder
    "by id": (
        "train/1.png train/2.png test/3.png",
        {"labels.csv": "id,breed\n2,pug\n1,fox"},
        ["fox", "pug"],
        [0, 1],
        "",
    ),
    # covid-chestxray-dataset#96
    "by id and by path": (
        "train/1.png train/2.png train/3.png test/2.png",
        {"labels.csv": "id,breed\n1,pug\ntrain/2.png,fox\n3.png,fox"},
        ["fox", "pug"],
        [1, 0, 0],
        "",
    ),
    "not set": ("1.png", {"labels.csv": "id,breed\n1,pug"}, [], [-1], "1 .csv; data.labels=FILE reads labels"),
    # covid-chestxray-dataset, cleanlab-studio#56: a column that is called as in Parquet
    "column image": ("1.png 2.png", {"metadata.csv": "image,label\n2.png,a\n1.png,b"}, ["a", "b"], [1, 0], ""),
    # CheXpert-Keras#1
    "not a number": ("1.png", {"metadata.jsonl": '{"file_name": "1.png", "label": NaN}'}, [], [-1], ""),
    "not a number, as a word": (
        "1.png 2.png",
        {"metadata.csv": "file_name,label\n1.png,nan\n2.png,3"},
        [],
        [-1, 3],
        "",
    ),
    "a table of Parquet": (
        "a/1.png",
        {"metadata.parquet": "x"},
        ["a"],
        [0],
        "1 metadata.parquet, whose labels are read",
    ),
}
"""Images, tables, and the classes, labels and warning that they give."""

BY_ID = Reading(labels="labels.csv", image_column="id", label_column="breed")


def put_tables(folder: Path, images: str, tables: dict[str, str]) -> str:
    put_tree(folder, images.split())
    for file, content in tables.items():
        put(folder / file, content.encode(errors="surrogatepass"))
    return f"folder:{folder}"


@pytest.mark.parametrize("case", TABLES)
def test_tables_beside_images_hold_their_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str) -> None:
    images, tables, names, labels, told = TABLES[case]
    name = put_tables(tmp_path, images, tables)
    found = load_split(name, None, "train", BY_ID if case.startswith("by id") else Reading())
    assert (found.class_names, found.labels.tolist()) == (tuple(names), labels)
    assert told in caplog.text
    assert len(caplog.records) == 1


TABLES_REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "two labels": ("1.png", {"metadata.csv": "file_name,label\n1.png,a\n1.png,b"}, "1 rows with another label: 1.png"),
    "two tables": (
        "1.png",
        {"metadata.csv": "file_name,label\n1.png,a", "metadata.jsonl": '{"file_name": "1.png", "label": "b"}'},
        "metadata.jsonl needs the labels of other tables, got another for 1.png; correct one",
    ),
    "other names": ("1.png", {"metadata.csv": "file_name,label\n/x/1.png,a"}, "names none of the images, got /x/1.png"),
    "of two parts": (
        "train/1.png test/1.png",
        {"labels.csv": "id,breed\n1,a"},
        "labels.csv names none of the images, got 1; write their paths",
    ),
    "other columns": ("1.png", {"labels.csv": "image,breed\n1,a"}, "image_column: .* no column id, got image, breed"),
    "no such file": ("1.png", {}, "labels.csv cannot be read, got no such file; write its path"),
    "more values": ("1.png", {"metadata.csv": "file_name,label\n1.png,a,b\n2.png\n"}, "2 rows without 2 values, such"),
    "no rows": ("1.png", {"metadata.csv": "file_name,label\n"}, "needs one label for an image, got no row"),
    "a list": ("1.png", {"metadata.jsonl": '{"file_name": "1.png", "label": [1]}'}, "image 1.png needs a whole number"),
    "no JSON": ("1.png", {"metadata.jsonl": "[1]"}, r"metadata.jsonl cannot be read, got \[1\] in place of an object"),
    "words and numbers": ("1.png 2.png", {"metadata.csv": "file_name,label\n1.png,a\n2.png,3"}, "both numbers and a"),
    "another encoding": ("1.png", {"metadata.csv": "\ud800"}, "metadata.csv cannot be read, got 'utf-8' codec"),
}


@pytest.mark.parametrize("case", TABLES_REFUSED.values(), ids=TABLES_REFUSED)
def test_tables_that_cannot_be_read_are_one_sentence(tmp_path: Path, case: tuple[str, dict[str, str], str]) -> None:
    images, tables, sentence = case
    name = put_tables(tmp_path, images, tables)
    with pytest.raises(DataError, match=sentence):
        load_split(name, None, "train", Reading() if "metadata" in "".join(tables) else BY_ID)


def test_test_images_have_the_classes_of_a_table_by_name(tmp_path: Path) -> None:
    rows = "file_name,label\ntrain/1.png,cat\ntrain/2.png,ant\ntest/3.png,cat"
    train, test = parts(put_tables(tmp_path, "train/1.png train/2.png test/3.png", {"metadata.csv": rows}))
    assert (train.class_names, train.labels.tolist(), test.labels.tolist()) == (("ant", "cat"), [1, 0], [1])


def test_another_folder_to_measure_on_needs_no_such_table(tmp_path: Path) -> None:
    name = put_tables(tmp_path, "train/a/1.png test/a/2.png", {})
    data = DataConfig(name="folder:x", labels="labels.csv")
    trained: Any = SimpleNamespace(config=SimpleNamespace(data=data), preprocessing=Preprocessing(0, (0.5,), (0.5,)))
    assert images_of_run(trained, name, None)[2].class_names == ("a",)


def held_out_of_a_run(folder: Path, rate: float) -> tuple[Any, Any, Split]:
    """Write 40 images in two classes without a test part; return what stands for a run on 30, and what it held out."""
    name = put_set("folder", folder / "train", pictures(["ant", "bee"] * 20), ["ant", "bee"] * 20)
    split = split_images(load_split(name, None, "train"), train_limit=30, holdout_rate=rate, confirm_rate=0.0)
    data = DataConfig(name=name, train_limit=30, holdout_rate=rate, digest=split.content)
    trained: Any = SimpleNamespace(config=SimpleNamespace(data=data), preprocessing=Preprocessing(0, (0.5,), (0.5,)))
    return trained, images_of_run(trained, None, None, needs_test=False), split


def test_a_run_on_images_without_a_test_part_is_measured_on_what_it_held_out(tmp_path: Path) -> None:
    """autogluon#1011, vision#613: a folder of classes alone."""
    trained, whole, split = held_out_of_a_run(tmp_path / "some", 0.3)
    with pytest.raises(NoTestPartError):
        images_of_run(trained, None, None)
    seen = held_out_images(whole, trained)
    assert seen.held_out
    assert sorted(seen.test.keys.tolist()) == sorted(split.holdout.keys.tolist())
    assert sorted([*seen.train.keys.tolist(), *seen.test.keys.tolist()]) == sorted(whole.train.keys.tolist())
    a_tenth = held_out_images(whole, None)
    assert a_tenth.test.keys.tolist() == whole.train.keys[held_out(whole.train.keys, 0.1)].tolist()
    choosing = MeasuredSet(*seen).is_held_out
    assert 0 < int(choosing.sum()) < len(choosing)
    for rate, more in ((0.0, "0.1"), (0.1, "0.5")):
        trained, whole, _ = held_out_of_a_run(tmp_path / f"none at {rate}", 0.0)
        trained.config.data = replace(trained.config.data, holdout_rate=rate, train_limit=1)
        with pytest.raises(NoTestPartError, match=rf"got 0 of its 40 .* next run with data.holdout_rate={more}, or"):
            held_out_images(whole, trained)


def test_images_of_a_run_at_another_place_are_still_measured_on_what_it_held_out(tmp_path: Path) -> None:
    trained, whole, split = held_out_of_a_run(tmp_path / "some", 0.3)
    copy = shutil.copytree(tmp_path / "some", tmp_path / "copy")
    for place in (f"{tmp_path}/some/../some", str(copy)):
        name = whole.name.replace(f"{tmp_path}/some", place)
        assert name != whole.name
        seen = held_out_images(images_of_run(trained, name, None, needs_test=False), trained)
        assert sorted(seen.test.keys.tolist()) == sorted(split.holdout.keys.tolist())
    other = replace(trained.config.data, digest="0" * 64)
    foreign: Any = SimpleNamespace(config=SimpleNamespace(data=other), preprocessing=trained.preprocessing)
    seen = held_out_images(whole._replace(name="folder:another"), foreign)
    assert seen.test.keys.tolist() == whole.train.keys[held_out(whole.train.keys, 0.1)].tolist()


@pytest.mark.parametrize(("name", "labels"), [("folder:x", "../a.csv"), ("folder:x", "/a.csv"), ("parquet:x", "a.csv")])
def test_a_table_of_labels_is_in_the_folder_of_its_images(name: str, labels: str) -> None:
    assert "labels: must be the path of a file in folder:PATH" in DataConfig(name=name, labels=labels).problems()[0]


QUESTIONS = {
    "no training part": (["val/a/0.png", "test/a/1.png"], "got files called test and val, .*give the path of one part"),
    "a part or a class": (["bus/x/0.png", "train/x/1.png"], "train may be the training part or a class, .*beside bus"),
    # Kaggle's seg_train and seg_test, YOLO's images/train
    "parts in names": (
        ["seg_train/a/0.png", "seg_test/a/1.png", "seg_pred/2.png"],
        "got folders seg_test and seg_train; ",
    ),
    "the folder above": (["images/train/a/0.png", "images/test/a/1.png"], r"test and train in images; give .*/images$"),
    "splits of classes": (
        ["cat/train/0.png", "cat/Test/1.png", "dog/0.png"],
        r"Test and train in cat; put the classes",
    ),
    # lovedlim/tensorflow#4: Kaggle's archives, some folders above their parts
    "two above": (["archive/x/train/a/0.png", "archive/x/test/a/1.png"], r"test and train in archive/x; give "),
    "far below": (["x/y/z/training_set/a/0.png", "x/y/z/test_set/a/1.png", "x/w/2.png"], r"in x/y/z; put the classes"),
    # MNIST of Kaggle as JPEG, Oxford's trainval, folders with numbers
    "parts in words": (
        ["trainingSet/0/0.png", "testSet/1.png"],
        "got folders testSet and trainingSet; call them train",
    ),
    "both parts in a word": (["trainval/a/0.png", "test/a/1.png"], "got folders test and trainval; call them train"),
    "parts with numbers": (["1_train/a/0.png", "2_test/a/1.png"], "got folders 1_train and 2_test; call them train"),
    # datasets#4150, OpenRLHF#367: every file was in the training part
    "parts in words of names": (
        ["trainset.parquet", "x/testset.parquet"],
        "x/testset.parquet and trainset.parquet; call",
    ),
    "parts in words of tars": (["trainset-0.tar", "testset-0.tar"], "got files testset-0.tar and trainset-0.tar; call"),
    "test and another": (["a.parquet", "a_test.parquet"], "called test, 1 without such a name and none called train"),
    "both words": (["a_train_x.parquet", "test_train.parquet"], "got test and train in test_train.parquet; rename it"),
}


@pytest.mark.parametrize(("files", "sentence"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_tree_that_would_train_on_test_images_is_refused(tmp_path: Path, files: list[str], sentence: str) -> None:
    put_tree(tmp_path, files)
    kind = {"parquet": "parquet", "tar": "webdataset"}.get(files[0].rpartition(".")[2], "folder")
    with pytest.raises(DataError, match=sentence):
        load_split(f"{kind}:{tmp_path}", None, "train")


def test_links_to_nothing_and_pipes_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """datalad#6973, dvc#4763: images that are links into a store that does not have them."""
    put_tree(tmp_path, ["a/0.png", "b/1.png"])
    (tmp_path / "a/2.png").symlink_to("../.git/annex/objects/2.png")
    (tmp_path / "c").symlink_to("b")
    os.mkfifo(tmp_path / "b/3.png")
    assert load_split(f"folder:{tmp_path}", None, "train").class_names == ("a", "b", "c")
    assert "left out: 2 that are no files, such as links to nothing" in caplog.text
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "a/0.png").unlink()
    with pytest.raises(DataError, match=r"no images in .*, only 2 that are no files, such as links to nothing; give"):
        load_split(f"folder:{tmp_path}", None, "train")


def test_tars_that_were_joined_are_read_to_their_end(tmp_path: Path) -> None:
    """squashfs-tools#212, libarchive#1620."""
    parts = [put_tar(tmp_path / f"{number}.tar", [(f"{number}.png", picture("ant", number))]) for number in range(3)]
    whole = b"".join(part.read_bytes() for part in parts)
    shutil.rmtree(tmp_path)
    put(tmp_path / "all.tar", whole)
    assert len(load_split(f"webdataset:{tmp_path}", None, "train")) == 3
    put(tmp_path / "all.tar", whole + b"?" * 512)
    with pytest.raises(DataError, match=r"all\.tar: not a readable WebDataset"):
        load_split(f"webdataset:{tmp_path}", None, "train")


def test_other_files_of_samples_without_labels_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """DALI#5228: labels under an ending that is not read."""
    load_split(put_tars(tmp_path, ["a.tar:1.png 1.txt 2.png 2.class"]), None, "train")
    assert "no .cls and no label in .json, so their images have no labels, got files .class, .txt" in caplog.text


@pytest.mark.parametrize("kind", ["parquet", "webdataset", "arrow"])
@pytest.mark.parametrize(
    ("content", "seems"), [("version https://git-lfs.", "a pointer of Git LFS"), ("<html>", "a web ")]
)
def test_a_set_that_is_something_else_is_told_what_it_seems_to_be(tmp_path, kind, content, seems):
    """GRPO-Zero#1, datasets#4077."""
    ends = {"parquet": "parquet", "webdataset": "tar", "arrow": "arrow"}
    put(tmp_path / f"a.{ends[kind]}", content)
    put(tmp_path / "state.json", '{"_data_files": [{"filename": "a.arrow"}]}')
    with pytest.raises(DataError, match=f"not a readable .*, got {seems}"):
        load_split(f"{kind}:{tmp_path}", None, "train")


@pytest.mark.parametrize(
    ("file", "remedy"),
    # datasets#7337, MedMNIST#38
    [
        ("a.zip", "unpack it"),
        ("a.npz", r"give arrays to ebclab.pretrain\(images=...\)"),
        ("a.tar", "webdataset:PATH"),
        ("a.tfrecord-00000-of-00001", "write it as Parquet"),
    ],
)
def test_a_folder_of_other_files_is_told_what_reads_them(tmp_path: Path, file: str, remedy: str) -> None:
    put(tmp_path / file, b"x")
    for place in (tmp_path, tmp_path / file):
        with pytest.raises(DataError, match=rf"only 1 .{file[2:11]}; .*{remedy}"):
            load_split(f"folder:{place}", None, "train")


Image.init()
SAVED = {
    end: form
    for end, form in [*Image.registered_extensions().items(), (".pjpeg", "JPEG")]
    if form in Image.SAVE and form not in ("PDF", "EPS", "PALM", "IM", "WMF", "GRIB", "BUFR", "HDF5")
}


@pytest.mark.parametrize("kind", ["folder", "webdataset"])
def test_whatever_the_installed_pillow_reads_is_read(tmp_path: Path, kind: str) -> None:
    """ComfyUI#13791: AVIF, JPEG 2000 and other suffixes of JPEG."""
    for end, form in SAVED.items():
        mode = {"XBM": "1", "MSP": "1", "BLP": "P"}.get(form, "RGB")
        put(tmp_path / "images" / f"of{end[1:]}{end.upper()}", encoded(Image.new(mode, (16, 16)), form))
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(tmp_path / "images", "images")
    place = tmp_path / ("images" if kind == "folder" else "all.tar")
    assert {".avif", ".jp2", ".jfif", ".jpe", ".pjpeg", ".tga", ".ico", ".pbm"} <= SAVED.keys()
    assert len(load_split(f"{kind}:{place}", None, "train", Reading(resize=8))) == len(SAVED)


def put_table(kind: str, folder: Path, made: pa.Table) -> str:
    """Write a table as Parquet or as a saved split; return the name of the set."""
    folder.mkdir(parents=True)
    if kind == "parquet":
        pq.write_table(made, folder / "a.parquet")
    else:
        put_arrow(folder / "a.arrow", made)
    return f"{kind}:{folder}"


BOTH = pytest.mark.parametrize("kind", ["parquet", "arrow"])


@BOTH
def test_the_only_column_of_images_is_found_and_other_labels_are_told(tmp_path, caplog, kind):
    """The Hub's CIFAR-10 and CIFAR-100."""
    name = put_table(kind, tmp_path / "ten", shown_table(ABC, [0, 1, 2], ABC, image="img"))
    assert load_split(name, None, "train").class_names == tuple(ABC)
    assert caplog.text == ""
    hundred = shown_table(ABC, [0, 1, 2], image="img").rename_columns(["img", "fine_label"])
    name = put_table(kind, tmp_path / "hundred", hundred)
    assert load_split(name, None, "train").labels.tolist() == [-1, -1, -1]
    assert "so its images have no labels, got columns fine_label; data.label_column names another" in caplog.text
    two = shown_table(ABC, [0, 1, 2], image="left").append_column("right", pa.array([b""] * 3))
    with pytest.raises(DataError, match=r"data\.image_column: .*got columns left, label, right"):
        load_split(put_table(kind, tmp_path / "two", two), None, "train")


@BOTH
def test_images_as_polars_stores_them_are_read(tmp_path: Path, kind: str) -> None:
    """explorer#995: a struct of bytes alone; polars#26435: views."""
    files = pa.array(pictures(ABC))
    views = pa.StructArray.from_arrays([files.cast(pa.binary_view()), pa.nulls(3, pa.string_view())], ["bytes", "path"])
    forms = [pa.StructArray.from_arrays([files], ["bytes"]), files.cast(pa.binary_view()), views]
    for number, images in enumerate(forms):
        made = pa.table({"image": images, "label": pa.array(ABC).cast(pa.string_view())})
        found = load_split(put_table(kind, tmp_path / f"{number}", made), None, "train")
        assert found.class_names == tuple(ABC)
        assert [int(image.flatten(1).float().mean(1).argmax()) for image in found.images] == [0, 1, 2]


@BOTH
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("bytes_type", [pa.binary(), pa.null()])
def test_paths_without_bytes_are_read_beside_the_table(tmp_path, kind, absolute, bytes_type):
    """datasets#4987: tables whose images were not embedded."""
    folder = tmp_path / "set"
    rows = [{"bytes": None, "path": f"{folder}/" * absolute + f"x/{number}.png"} for number in range(3)]
    struct = pa.struct({"bytes": bytes_type, "path": pa.string()})
    name = put_table(kind, folder, pa.table({"image": pa.array(rows, struct), "label": ABC}))
    for number, what in enumerate(ABC):
        put(folder / "x" / f"{number}.png", picture(what, number))
    train = load_split(name, None, "train")
    assert [int(image.flatten(1).float().mean(1).argmax()) for image in train.images] == [0, 1, 2]
    if kind == "parquet":
        assert len(load_split(f"{name}/a.parquet", None, "train")) == 3
    (folder / "x/1.png").unlink()
    with pytest.raises(DataError, match=r"row 1 .*holds a path and no bytes, got no file x/1.png beside the table"):
        load_split(name, None, "train")


@BOTH
def test_a_row_without_an_image_is_named_or_left_out_if_asked(tmp_path: Path, kind: str) -> None:
    """datasets#5921."""
    rows = [{"bytes": picture(what, 0), "path": None} if what != "bee" else None for what in ABC]
    struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    name = put_table(kind, tmp_path / "set", pa.table({"image": pa.array(rows, struct), "label": ABC}))
    with pytest.raises(
        DataError, match=r"row 1.*: not a readable image, got a file of no known format \(it is empty\)"
    ):
        load_split(name, None, "train")
    assert len(load_split(name, None, "train", Reading(skip_corrupt=True))) == 2


@BOTH
@pytest.mark.parametrize(
    "path", ["../out.png", "{}/out.png", "link.png", "x/../../out.png", "a\0.png", "{}/set/../out.png", b"\xff"]
)
def test_a_path_never_leads_out_of_the_folder_of_its_table(tmp_path: Path, kind: str, path: str | bytes) -> None:
    put(tmp_path / "out.png", picture("ant", 0))
    paths = pa.array([path if isinstance(path, bytes) else path.format(tmp_path).encode()], pa.binary()).view(
        pa.string()
    )
    images = pa.StructArray.from_arrays([pa.array([None], pa.binary()), paths], ["bytes", "path"])
    name = put_table(kind, tmp_path / "set", pa.table({"image": images}))
    (tmp_path / "set/link.png").symlink_to(tmp_path / "out.png")
    with pytest.raises(DataError, match=r"holds a path and no bytes, which leads out of its folder, got |Invalid UTF8"):
        load_split(name, None, "train", Reading(skip_corrupt=True))


def test_a_large_image_has_our_message_and_no_warning_of_pillow() -> None:
    code = """
import io
from PIL import Image
from ebclab.data.photograph import TooManyPixelsError, read_photograph
file = io.BytesIO()
Image.new("1", (12_000, 12_000)).save(file, "PNG")
try:
    read_photograph(file.getvalue(), 3, 64)
except TooManyPixelsError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("12000 x 12000 pixels, more than")
    assert done.stderr == ""


HELD: dict[str, tuple[str, tuple[str, ...]]] = {
    # fault: (reports, tests, of this file where none is named; in brackets the case)
    "a JPEG file called .jpe or .pjpeg is left out": (
        "ultralytics#23358, ComfyUI#13791",
        ("test_whatever_the_installed_pillow_reads_is_read",),
    ),
    "so is one of AVIF, JPEG 2000, TGA, ICO, PBM or DDS, which Pillow reads": (
        "ultralytics#23358, ComfyUI#13791",
        ("test_whatever_the_installed_pillow_reads_is_read",),
    ),
    "HEIC, JPEG XL, DICOM and .npy files are left out without a word": (
        "ultralytics#23358, ComfyUI#13791, lightly-train 0.8 to 0.12",
        ("test_splits_and_classes_of_a_tree_are_told_apart[no images]",),
    ),
    "HEIC called .jpg is a file of no known format": (
        "ComfyUI#13791",
        ("data/test_photograph.py::test_a_file_that_is_no_image_is_told_what_it_seems_to_be[HEIC]",),
    ),
    "so is a TIFF file of five bands": (
        "lightly-train, tifffile",
        ("data/test_photograph.py::test_a_file_that_is_no_image_is_told_what_it_seems_to_be[bands]",),
    ),
    "of a TIFF file of many pages the first is read without a word": (
        "napari, tifffile",
        ("data/test_photograph.py::test_images_that_lose_pixels_without_damage_are_told_once",),
    ),
    "12 bits in a file of 16 are read nearly black": (
        "geti#6726",
        ("data/test_photograph.py::test_images_that_lose_pixels_without_damage_are_told_once",),
    ),
    "a large image shows Pillow's warning beside the message": (
        "ultralytics#23358",
        ("test_a_large_image_has_our_message_and_no_warning_of_pillow",),
    ),
    "test files in the Hub's layout are trained on": (
        "marin#2381",
        ("test_splits_and_classes_of_a_tree_are_told_apart[the Hub's]",),
    ),
    "so are cifar10_test.parquet and the like": (
        "files of CIFAR-10 in one folder",
        ("test_splits_and_classes_of_a_tree_are_told_apart[words in names]",),
    ),
    "training and testing, of any case, are classes": (
        "vision#2831, ultralytics, Kaggle",
        (
            "test_splits_and_classes_of_a_tree_are_told_apart[training]",
            "test_splits_and_classes_of_a_tree_are_told_apart[Training]",
        ),
    ),
    "val and test without train are classes": (
        "pytorch-tiny-imagenet#4",
        ("test_a_tree_that_would_train_on_test_images_is_refused[no training part]",),
    ),
    "images/train and images/test are one class": (
        "YOLO's layout",
        ("test_a_tree_that_would_train_on_test_images_is_refused[the folder above]",),
    ),
    "a split within each class is trained on whole": (
        "class/train, class/test",
        ("test_a_tree_that_would_train_on_test_images_is_refused[splits of classes]",),
    ),
    "a class called train is the training part": (
        "COCO, VOC, photographs of vehicles",
        ("test_splits_and_classes_of_a_tree_are_told_apart[a class train]",),
    ),
    "so are trainingSet and testSet, and parts some folders below": (
        "MNIST of Kaggle, lovedlim/tensorflow#4",
        (
            "test_a_tree_that_would_train_on_test_images_is_refused[parts in words]",
            "test_a_tree_that_would_train_on_test_images_is_refused[two above]",
        ),
    ),
    "trainset.parquet and testset.parquet are one part": (
        "datasets#4150, OpenRLHF#367",
        ("test_a_tree_that_would_train_on_test_images_is_refused[parts in words of names]",),
    ),
    "dev and eval are no part": (
        "datasets#3221",
        ("test_splits_and_classes_of_a_tree_are_told_apart[dev]",),
    ),
    "images that are links to nothing are left out without a word": (
        "datalad#6973, dvc#4763",
        ("test_links_to_nothing_and_pipes_are_counted",),
    ),
    "so are packed shards beside others, and tables of another suffix": (
        "img2dataset#174, datasets#7337",
        (
            "test_splits_and_classes_of_a_tree_are_told_apart[packed shards]",
            "test_splits_and_classes_of_a_tree_are_told_apart[other tables]",
        ),
    ),
    "so are all tars but the first that are joined in a file": (
        "squashfs-tools#212, libarchive#1620",
        ("test_tars_that_were_joined_are_read_to_their_end",),
    ),
    "labels under another ending are not read without a word": (
        "DALI#5228",
        ("test_other_files_of_samples_without_labels_are_named",),
    ),
    "a pointer of Git LFS in place of a table is a damaged one": (
        "GRPO-Zero#1, datasets#4077",
        ("test_a_set_that_is_something_else_is_told_what_it_seems_to_be",),
    ),
    "tables of Polars hold no images": (
        "polars#26435",
        ("test_images_as_polars_stores_them_are_read",),
    ),
    "names that differ in what cannot be seen are two classes": (
        "class folders copied from web pages",
        ("test_classes_are_matched_by_name_and_perfect_features_score_all[a character without width]",),
    ),
    "folders of thumbnails are classes": (
        "vision#2831, Synology's @eaDir",
        ("test_splits_and_classes_of_a_tree_are_told_apart[thumbnails]",),
    ),
    "images of both parts are measured without a word": (
        "RIAWELC#2, ResEmoteNet#42, hulk#2831",
        (
            "runs/test_recorded_images.py::test_test_images_that_were_trained_on_are_counted",
            "card/test_measure.py::test_test_images_that_are_training_images_too_are_counted",
        ),
    ),
    "classes are compared by number where both parts have names": (
        "DeepForest#1147, ultralytics#26192, datasets#2457",
        ("test_classes_are_matched_by_name_and_perfect_features_score_all[the same, saved]",),
    ),
    "a test class without training images in Parquet counts as a mistake": (
        "ultralytics#26192",
        ("test_classes_that_cannot_be_matched_are_refused_by_name[number]",),
    ),
    "so does one in tars": (
        "ultralytics#26192",
        ("test_classes_that_cannot_be_matched_are_refused_by_name[in a tar]",),
    ),
    "names of a ClassLabel in Parquet are not read": (
        "datasets#4987",
        ("test_classes_are_matched_by_name_and_perfect_features_score_all[names in another order]",),
    ),
    "words as labels are refused": (
        "datasets#4987",
        (
            "test_classes_are_matched_by_name_and_perfect_features_score_all[words]",
            "test_classes_are_matched_by_name_and_perfect_features_score_all[saved words]",
        ),
    ),
    "so are booleans": ("datasets#4987", ("test_booleans_are_the_classes_false_and_true",)),
    "and words in the .cls files of tars": (
        "webdataset's .cls with names",
        ("test_classes_are_matched_by_name_and_perfect_features_score_all[words in .cls]",),
    ),
    "class folders in tars are no labels": (
        "refiner#124",
        ("test_folders_in_tars_are_classes_where_no_sample_has_a_label",),
    ),
    "labels.csv and metadata.csv beside images are not read": (
        "Kaggle, datasets#4069",
        ("test_tables_beside_images_hold_their_labels",),
    ),
    "NFC and NFD forms of a name are two classes": (
        "archives made on macOS",
        ("test_names_that_differ_in_their_unicode_form_are_one_class",),
    ),
    "rows with a path and no bytes are images that cannot be decoded": (
        "datasets#4987, #5921, #6880",
        ("test_paths_without_bytes_are_read_beside_the_table",),
    ),
    "so is a row without an image": ("datasets#5921", ("test_a_row_without_an_image_is_named_or_left_out_if_asked",)),
    "the only image column must be named": (
        "CIFAR-10 of the Hub",
        ("test_the_only_column_of_images_is_found_and_other_labels_are_told",),
    ),
    "a dot in the name of a sample hides its image": (
        "webdataset#407",
        ("test_folders_in_tars_are_classes_where_no_sample_has_a_label[dots in names]",),
    ),
    "files of a sample that are not adjacent are a damaged tar": (
        "webdataset#140, #407",
        ("data/sources/test_webdataset.py::test_what_is_no_set_of_images_is_one_sentence",),
    ),
    "a batch size that the program chose is larger than the set": (
        "tabnet#537, vamb#425",
        ("data/test_fitting.py::test_a_set_of_few_images_trains_with_what_is_chosen_for_it",),
    ),
    "so is the default number of neighbours": (
        "spt#373",
        ("data/test_fitting.py::test_a_set_of_few_images_trains_with_what_is_chosen_for_it",),
    ),
    "a recipe's warm-up is longer than fewer epochs": (
        "first tries",
        ("config/test_recipes.py::test_the_warmup_of_a_recipe_is_never_longer_than_fewer_epochs",),
    ),
    "a shipped space has batch sizes above the number of images, refused one by one without a remedy": (
        "first sweeps of own photographs",
        ("sweeps/test_preflight.py::test_batches_larger_than_the_images_are_one_line_that_says_which_sizes_to_keep",),
    ),
    "a sweep repeats equal settings and does not say so": (
        "optuna#2021, #4714, #5440, nni#4619",
        ("sweeps/test_conclude.py::test_trials_that_repeat_settings_are_counted",),
    ),
    "a temperature of 1e-30 trains without a word": (
        "SupContrast",
        (
            "training/test_collapsed_runs.py::"
            "test_a_run_that_learns_nothing_says_so_and_a_healthy_one_nothing[temperature 1e-30]",
        ),
    ),
    "so does a collapsed run": (
        "SimSiam#56, lightly#134, dinov2#272",
        (
            "training/test_collapsed_runs.py::"
            "test_a_run_that_learns_nothing_says_so_and_a_healthy_one_nothing[only invariance]",
        ),
    ),
    "a reader of standard output that goes away ends training": (
        "`| head`, closed terminals",
        ("cli/test_process.py::test_a_command_continues_when_no_one_reads_its_output",),
    ),
    "closed standard error ends a command without a word": (
        "daemons",
        ("test_text_that_leaves.py::test_a_command_works_without_its_output",),
    ),
    "more threads than a container, a unit of systemd or a job of Slurm has time for": (
        "ray#63685, skypilot#8293, batpred#4771, xgboost#9622, ollama#17916, lilbee#660",
        (
            "test_hardware.py::test_no_more_threads_than_control_groups_have_time_for",
            "test_hardware.py::test_no_more_threads_than_the_variables_of_openmp_and_slurm_say",
        ),
    ),
    "variables for Ray of other programs take a sweep's display, Ctrl-C and time limit away": (
        "ray#38202, ray#60981",
        (
            "cluster/test_switches.py::"
            "test_values_of_the_user_are_kept_but_of_switches_without_which_sweeps_would_not_work",
        ),
    ),
    "float64 as torch's default is a traceback": (
        "users of set_default_dtype",
        ("test_hardware.py::test_other_tensors_than_torch_makes_unasked_are_refused",),
    ),
    "RAY_ADDRESS=auto without a cluster is a traceback": (
        "ray#32961, prefect-ray#64",
        ("cluster/test_head.py::test_a_cluster_of_this_machine_that_is_not_there_is_a_sentence",),
    ),
    "macOS has no sched_getaffinity": (
        "users of macOS",
        ("test_hardware.py::test_cores_are_counted_where_processes_have_no_affinity",),
    ),
    "training leaves torch's threads, filters of warnings and the environment changed": (
        "TransformerEngine#812, torch#87626",
        (
            "test_hardware.py::test_torch_s_threads_and_kernels_and_the_environment_are_put_back",
            "data/test_photograph.py::test_pillow_s_warnings_are_not_shown_and_their_filter_goes_with_the_call",
        ),
    ),
    "a run cannot be resumed with its images in another place": (
        "dinov2, timm",
        ("runs/test_recorded_images.py::test_a_run_goes_on_with_equal_images_in_another_place_and_with_no_others",),
    ),
    "items of a Hugging Face dataset are no images": (
        "datasets",
        ("data/test_own_images.py::test_a_dataset_of_columns_gives_its_only_image_and_its_label",),
    ),
    "pretrained weights without a network are a minute of silence": (
        "timm",
        (
            "encoders/test_timm_encoder.py::"
            "test_where_the_name_of_the_hub_is_unknown_its_library_does_not_try_for_a_minute",
            "runs/test_initial_weights.py::test_what_timm_does_not_have_or_cannot_fetch_is_a_sentence",
        ),
    ),
    "one seed, or runs that all agree, read as certainty or as noise": (
        "garak#2076, svy#98, mkado#79, Bootstrap.jl#40",
        (
            "reports/test_verdict.py::test_one_seed_is_neither_within_noise_of_a_reference_nor_below_it",
            "reports/test_verdict.py::test_an_objective_that_is_no_number_in_any_trial_is_no_best_one",
            "comparisons/test_statistics.py::"
            "test_a_bootstrap_interval_is_repeatable_contains_the_estimate_and_draws_within_tasks_alone",
        ),
    ),
    "what cannot be measured is told after training": (
        "users of own studies",
        ("cli/test_reproduce_command.py::test_a_study_by_probes_of_images_without_labels_is_refused_before_it_trains",),
    ),
    "a killed worker is not named": (
        "ray#58286",
        (
            "cluster/test_death.py::test_a_process_that_died_is_told_with_what_ray_knows",
            "runs/test_death.py::test_a_fatal_signal_is_told_with_the_line_at_which_the_process_was",
        ),
    ),
}


@pytest.mark.parametrize("fault", HELD)
def test_the_tests_that_hold_a_fault_are_there(fault: str) -> None:
    _, tests = HELD[fault]
    for named in tests:
        file, _, rest = named.rpartition("::")
        name, _, case = rest.removesuffix("]").partition("[")
        path = Path(__file__).parents[1] / file if file else Path(__file__)
        text = path.read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), named
        before = text if file else text.partition("\nHELD: ")[0]
        assert f'"{case}"' in before or not case, named
