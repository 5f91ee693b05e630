"""Sets in the layout of PASCAL VOC: labels by hand, what is refused, and who refuses them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from made_up_voc import TEST, write_voc

from ebclab.config import compose
from ebclab.data.digests import content_digest
from ebclab.data.image_set import ImageArrays
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.layouts.voc import read_annotation
from ebclab.data.sources.load import load_split, splits_of
from ebclab.errors import ConfigError, DataError
from ebclab.evaluation.features import require_labels
from ebclab.training.setup import classes_of
from energy_contrast.catalog import METHODS

SMALL = Reading(resize=8)
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
    back = pickle.loads(pickle.dumps(ImageArrays.of(test))).image_set()
    assert torch.equal(back.marks, test.marks)
    assert test.marks is not None
    changed = test.rows(torch.arange(10))
    assert changed.marks is not None
    changed.marks[0, 0] = 0
    assert content_digest(changed) != content_digest(test)


def test_keys_do_not_depend_on_other_images(tmp_path: Path) -> None:
    root = write_voc(tmp_path)
    before = load_split(f"voc:{root}", None, "test", SMALL).keys
    for file in root.glob("ImageSets/Main/*test.txt"):
        file.write_text("\n".join(file.read_text().splitlines()[4:]))
    assert torch.equal(load_split(f"voc:{root}", None, "test", SMALL).keys, before[4:])


def test_a_folder_above_the_set_is_told_what_belongs_there(tmp_path: Path) -> None:
    root = write_voc(tmp_path)
    with pytest.raises(DataError, match=r"PATH is VOCdevkit/VOC2007 in it, with\n  JPEGImages/000001.jpg"):
        load_split(f"voc:{root.parent}", None, "train", SMALL)


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
    assert read_annotation(b"<annotation>" + both + part + b"</annotation>") == {"cat": 1, "dog & co": -1}


def test_whatever_needs_one_label_an_image_refuses_such_a_set(tmp_path: Path) -> None:
    name = f"voc:{write_voc(tmp_path)}"
    train = load_split(name, None, "train", SMALL)
    with pytest.raises(DataError, match=r"voc:.*: its images may have several labels each, which only the transfer"):
        require_labels(train)
    with pytest.raises(DataError, match="has any number of labels an image, and a Parquet set one"):
        prepare_dataset({"train": train}, tmp_path / "set")
    config = compose("supervised", overrides=[f"data.name={name}", "views.recipe=none", "data.resize=8"])
    with pytest.raises(ConfigError, match="supervised learns from labels, got 8 of 8 training images without"):
        classes_of(config, METHODS["supervised"], train.labels, train.class_names)
