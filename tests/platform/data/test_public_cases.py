"""Datasets as people have them: the form of each comes from a public report of a user of this or another library."""

from __future__ import annotations

import io
import json
import math
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ebclab.config.sections import EvaluationConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.load import load_split, open_source
from ebclab.errors import DataError
from ebclab.evaluation.evaluate import raw_pixel_scores

COLOURS = {"ant": (200, 20, 20), "bee": (20, 200, 20), "cat": (20, 20, 200), "yak": (200, 200, 200)}
TRAIN, TEST = ["ant", "bee", "cat"] * 8, ["cat", "cat", "ant", "bee", "bee"]
ABC, CAB = ["ant", "bee", "cat"], ["cat", "ant", "bee"]
IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def picture(what: str, seed: int, form: str = "PNG") -> bytes:
    """An image whose colour tells its class."""
    noise = np.random.default_rng(seed).integers(0, 20, (6, 6, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise + np.array(COLOURS.get(what, (99, 99, 99)), np.uint8)).save(buffer, form)
    return buffer.getvalue()


def table(shown: list[str], labels: Any, names: list[str] | None = None, image: str = "image") -> pa.Table:
    """Images of what ``shown`` tells, labels, and names of classes as Hugging Face's datasets writes them."""
    files = [{"bytes": picture(what, number), "path": None} for number, what in enumerate(shown)]
    made = pa.table({image: pa.array(files, IMAGE), "label": labels})
    if names is None:
        return made
    features = {image: {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def put_folder(part: Path, shown: list[str], labels: Any, names: list[str] | None = None) -> None:
    for number, (what, label) in enumerate(zip(shown, labels, strict=True)):
        put(part / str(label) / f"{number}.png", picture(what, number))


def put_parquet(part: Path, shown: list[str], labels: Any, names: list[str] | None = None) -> None:
    part.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(shown, labels, names), part / "0.parquet", row_group_size=7)


def put_arrow(part: Path, shown: list[str], labels: Any, names: list[str] | None = None) -> None:
    part.mkdir(parents=True)
    made = table(shown, labels, names)
    with pa.OSFile(str(part / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made, max_chunksize=7)
    put(part / "state.json", b'{"_data_files": [{"filename": "data.arrow"}]}')
    put(part.parent / "dataset_dict.json", b'{"splits": ["train", "test"]}')


def put_webdataset(part: Path, shown: list[str], labels: Any, names: list[str] | None = None) -> None:
    part.mkdir(parents=True)
    with tarfile.open(part / "0.tar", "w") as tar:
        for number, (what, label) in enumerate(zip(shown, labels, strict=True)):
            told = (
                ("cls", label.encode()) if isinstance(label, str) else ("json", json.dumps({"label": label}).encode())
            )
            for suffix, content in (("png", picture(what, number)), told):
                member = tarfile.TarInfo(f"{number:03}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


PUT = {"folder": put_folder, "parquet": put_parquet, "arrow": put_arrow, "webdataset": put_webdataset}


def parts(name: str) -> tuple[ImageSet, ImageSet]:
    return load_split(name, None, "train"), load_split(name, None, "test")


def by(names: list[str], shown: list[str]) -> list[int]:
    return [names.index(what) for what in shown]


def words(shown: list[str]) -> pa.Array:
    return pa.array(shown).dictionary_encode()


TWO = [what for what in TRAIN if what != "cat"], [what for what in TEST if what != "cat"]
YES = [[what == "bee" for what in part] for part in TWO]
LABELS: dict[str, tuple[str, list[str], Any, Any, Any, list[str]]] = {
    # https://github.com/weecology/DeepForest/issues/1147, https://github.com/ultralytics/ultralytics/issues/26192
    "names in another order": ("parquet", ABC, by(ABC, TRAIN), by(CAB, TEST), CAB, ABC),
    "the same, saved": ("arrow", ABC, by(ABC, TRAIN), by(CAB, TEST), CAB, ABC),
    "names of one class more": ("arrow", ABC, by(ABC, TRAIN), by(["yak", *CAB], TEST), ["yak", *CAB], ABC),
    # https://github.com/huggingface/datasets/issues/4987: labels as words, whole floats and booleans
    "folders": ("folder", [], TRAIN, TEST, [], ABC),
    "words": ("parquet", [], TRAIN, TEST, [], ABC),
    "words of a dictionary": ("parquet", [], words(TRAIN), words(TEST), [], ABC),
    "saved words": ("arrow", [], TRAIN, TEST, [], ABC),
    "saved words of a dictionary": ("arrow", [], words(TRAIN), words(TEST), [], ABC),
    "words and a ClassLabel": ("parquet", [], TRAIN, by(CAB, TEST), CAB, ABC),
    "whole floats": ("parquet", [], [float(each) for each in by(ABC, TRAIN)], by(ABC, TEST), [], []),
    "words in .cls": ("webdataset", [], TRAIN, TEST, [], ABC),
    "numbers in .json": ("webdataset", [], by(ABC, TRAIN), [float(each) for each in by(ABC, TEST)], [], []),
}


@pytest.mark.parametrize("case", LABELS.values(), ids=LABELS)
def test_classes_are_matched_by_name_and_perfect_features_score_all(tmp_path: Path, case: tuple[Any, ...]) -> None:
    kind, train_names, train_labels, test_labels, test_names, names = case
    PUT[kind](tmp_path / "train", TRAIN, train_labels, train_names or None)
    PUT[kind](tmp_path / "test", TEST, test_labels, test_names or None)
    train, test = parts(f"{kind}:{tmp_path}")
    assert train.class_names == test.class_names == tuple(names)
    assert sorted(test.labels.tolist()) == sorted(by(ABC, TEST))
    assert open_source(f"{kind}:{tmp_path}", "test", Reading()).index.labels.tolist() == test.labels.tolist()
    config = EvaluationConfig(knn_neighbours=3)
    assert raw_pixel_scores(train, test, config, only=("knn",))["knn"].value == 1.0


@pytest.mark.parametrize("kind", ["parquet", "arrow", "webdataset"])
def test_booleans_are_the_classes_false_and_true(tmp_path: Path, kind: str) -> None:
    for part, shown, labels in zip(("train", "test"), TWO, YES, strict=True):
        PUT[kind](tmp_path / part, shown, labels)
    train, test = parts(f"{kind}:{tmp_path}")
    assert train.class_names == test.class_names == ("false", "true")
    assert (train.labels.tolist(), test.labels.tolist()) == tuple([*map(int, each)] for each in YES)


@pytest.mark.parametrize(
    "labels",
    [[1.0, math.nan, None], [1, None, None], ["ant", "", None], pa.array(["ant", None, ""]).dictionary_encode()],
)
def test_empty_labels_are_unknown(tmp_path: Path, labels: Any) -> None:
    put_parquet(tmp_path, ["ant"] * 3, labels, ["bee", "ant"] if labels[0] == 1 else None)
    found = load_split(f"parquet:{tmp_path}", None, "train")
    assert (found.labels.tolist(), found.class_names[-1]) == ([len(found.class_names) - 1, -1, -1], "ant")


REFUSED: dict[str, tuple[str, Any, Any, Any, Any, str]] = {
    # https://github.com/ultralytics/ultralytics/issues/26192
    "folder": ("folder", TRAIN, None, ["yak", *TEST[1:]], None, "got yak; known are ant, bee, cat; leave"),
    "number": ("parquet", by(ABC, TRAIN), None, [3, 0, 0, 1, 7], None, "images, got 3, 7; known are 0, 1, 2; leave"),
    "saved": ("arrow", by(ABC, TRAIN), None, [3, 0, 0, 1, 1], None, "images, got 3; known are 0, 1, 2; leave"),
    "in a tar": ("webdataset", by(ABC, TRAIN), None, [3, 0, 0, 1, 1], None, "images, got 3; known are 0, 1, 2; leave"),
    "word": ("webdataset", TRAIN, None, ["yak", *TEST[1:]], None, "images, got yak; known are ant, bee, cat; leave"),
    "name": ("parquet", by(ABC, TRAIN), ABC, [0] * 5, ["yak"], "images, got yak; known are ant, bee, cat; leave"),
    "a name that no training image has": ("parquet", [0] * 24, ABC, [2] * 5, ABC, "images, got cat; known are ant; "),
    "names in one part": (
        "parquet",
        TRAIN,
        None,
        [0] * 5,
        None,
        "got ant, bee, cat in the training part and numbers in",
    ),
    "names in the other": (
        "arrow",
        by(ABC, TRAIN),
        None,
        TEST,
        None,
        "got ant, bee, cat in the test part and numbers in",
    ),
    "number without a name": (
        "arrow",
        by(ABC, TRAIN),
        ABC[:2],
        [0] * 5,
        ABC,
        "must have a name, got 2 in .*names 2 cl",
    ),
    "broken number": ("parquet", [0.5] * 24, None, [0.0] * 5, None, "must hold whole numbers .*, got Float value 0.5"),
    "a name twice": (
        "parquet",
        by(ABC, TRAIN),
        ABC,
        [0] * 5,
        ["ant", "ant"],
        "names of classes must differ, got ant tw",
    ),
    "long words": (
        "parquet",
        ["x" * 1001] * 24,
        None,
        TEST,
        None,
        "at most 1,048,576 words of 1,000 characters are na",
    ),
    "words and numbers": (
        "webdataset",
        ["ant", *[1] * 23],
        None,
        TEST,
        None,
        "all numbers or all names of .* and ant in",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_classes_that_cannot_be_matched_are_refused_by_name(tmp_path: Path, case: tuple[Any, ...]) -> None:
    kind, train_labels, train_names, test_labels, test_names, sentence = case
    PUT[kind](tmp_path / "train", TRAIN, train_labels, train_names)
    PUT[kind](tmp_path / "test", TEST, test_labels, test_names)
    with pytest.raises(DataError, match=sentence):
        load_split(f"{kind}:{tmp_path}", None, "test")


def test_names_that_differ_in_their_unicode_form_are_one_class(tmp_path: Path) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    put_folder(tmp_path / "train", ["ant", "ant", "bee"], [composed, apart, "the"])
    put_folder(tmp_path / "test", ["bee", "ant"], ["the", apart])
    train, test = parts(f"folder:{tmp_path}")
    assert train.class_names == test.class_names == (apart, "the")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 1], [0, 1])


def test_files_of_one_part_are_joined_by_the_names_of_their_classes(tmp_path: Path) -> None:
    for number, (names, shown) in enumerate([(ABC, TRAIN), (CAB, TEST), (["bee", "yak"], ["bee", "yak"])]):
        pq.write_table(table(shown, by(names, shown), names), tmp_path / f"{number}.parquet")
    found = load_split(f"parquet:{tmp_path}", None, "train")
    assert found.class_names == ("ant", "bee", "cat", "yak")
    assert found.labels.tolist() == by([*ABC, "yak"], [*TRAIN, *TEST, "bee", "yak"])
