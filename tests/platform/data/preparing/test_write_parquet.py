"""Prepared sets: what was put in comes out, in shards whose sizes have reasons, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from ebclab.cli.app import app
from ebclab.data.image_set import ImageSet
from ebclab.data.preparing.shards import group_rows, shard_count
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError, RunError


def image_set(count: int, seed: int) -> ImageSet:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 4, 5), dtype=torch.uint8, generator=generator)
    keys = torch.arange(count) * 3 - 7
    return ImageSet("made", images, torch.arange(count) // (count // 2), keys, ("a", "b"), (0.1, 0.2, 0.3), (1.0,) * 3)


@pytest.fixture
def splits() -> dict:
    return {"train": image_set(2500, 0), "test": image_set(30, 1)}


def test_a_prepared_set_holds_the_same_images_labels_keys_names_and_statistics(tmp_path: Path, splits: dict) -> None:
    lines: list[str] = []
    prepare_dataset(splits, tmp_path / "set", progress=lines.append)
    assert lines == ["train: 2,500 images, 2 classes, in 3 files", "test: 30 images, 2 classes, in 1 file"]
    for split, wanted in splits.items():
        found = load_split(f"parquet:{tmp_path}/set", None, split)
        order = found.keys.argsort()
        assert torch.equal(found.keys[order], wanted.keys)
        assert torch.equal(found.images[order], wanted.images)
        assert torch.equal(found.labels[order], wanted.labels)
        assert (found.class_names, found.mean, found.std) == (wanted.class_names, wanted.mean, wanted.std)


def test_neighbours_in_a_shard_have_nothing_in_common(tmp_path: Path, splits: dict) -> None:
    prepare_dataset(splits, tmp_path / "set", progress=lambda line: None)
    labels = load_split(f"parquet:{tmp_path}/set", None, "train").labels  # sorted by class before
    changes = int((labels[1:] != labels[:-1]).sum())
    assert abs(changes - 1249.5) < 4 * 25  # a fair coin: mean 2499 / 2, deviation sqrt(2499) / 2


def test_checksums_and_description_are_true(tmp_path: Path, splits: dict) -> None:
    prepare_dataset(splits, tmp_path / "set", shards=2, progress=lambda line: None)
    sums = json.loads((tmp_path / "set/checksums.json").read_text())
    files = {path.relative_to(tmp_path / "set").as_posix(): path for path in (tmp_path / "set").rglob("*.parquet")}
    assert sums == {
        name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for name, path in files.items()
    }
    assert sorted(files) == [
        "test/part-00000-of-00001.parquet",
        "train/part-00000-of-00002.parquet",
        "train/part-00001-of-00002.parquet",
    ]
    told = json.loads((tmp_path / "set/dataset.json").read_text())
    assert told["num_images"] == {"train": 2500, "test": 30}
    assert told["shape"] == [3, 4, 5]
    schema = pq.read_schema(files["train/part-00000-of-00002.parquet"])
    assert [(field.name, str(field.type)[:30]) for field in schema] == [
        ("image", "extension<arrow.fixed_shape_te"),
        ("label", "int64"),
        ("index", "int64"),
    ]


@pytest.mark.parametrize(
    ("images", "image_bytes", "asked", "shards"),
    [
        (60_000, 784, 0, 8),  # 47 MB: at least eight
        (2_500, 784, 0, 3),  # but none below a row group of 1,024
        (10, 784, 0, 1),
        (1_281_167, 3 * 256 * 256, 0, 1877),  # 252 GB / 128 MiB, rounded up
        (60_000, 784, 4, 4),
        (10, 784, 4, 1),
    ],
)
def test_the_number_of_shards(images: int, image_bytes: int, asked: int, shards: int) -> None:
    assert shard_count(images, image_bytes, asked) == shards


def test_row_groups_are_at_most_8_mib_of_large_images() -> None:
    assert (group_rows(784), group_rows(8 << 13), group_rows(1 << 20), group_rows(1 << 30)) == (1024, 128, 8, 1)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, splits: dict) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match=r"--to: there is something already, got .*; give a folder that is new or"):
        prepare_dataset(splits, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_nothing_is_left_when_writing_fails(tmp_path: Path, splits: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(RunError, match=r"the disk is full, .*; free some space and run the same command again"):
        prepare_dataset(splits, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_the_verb_prepares_and_says_what_comes_next(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["data", "prepare", "digits", "--to", str(tmp_path / "set")])
    assert result.exit_code == 0, result.output
    assert f"next: ebclab pretrain METHOD --dataset parquet:{tmp_path}/set --set views.recipe=digits" in result.output
    found, wanted = load_split(f"parquet:{tmp_path}/set", None, "test"), load_split("digits", None, "test")
    assert torch.equal(found.images[found.keys.argsort()], wanted.images)
