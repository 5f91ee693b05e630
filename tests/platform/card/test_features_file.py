"""Features as files: read back by NumPy and pyarrow, and equal to what the encoder makes of the pixels."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from torch import nn

from ebclab.card import search as module
from ebclab.card.subject import Subject
from ebclab.cli import main
from ebclab.data.preprocessing import Preprocessing

from .conftest import FILES

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.5, 0.2)


@pytest.fixture
def photos(files: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Let the encoder be the normalised pixels themselves."""
    subject = Subject("pixels", "pixels", nn.Flatten(), Preprocessing(6, MEAN, STD), 3, "made up", "a digest")
    monkeypatch.setattr(module, "open_subject", lambda *_: subject)
    return files


def of_npz(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        columns = {name: file[name] for name in file.files}
    return columns, json.loads(str(columns.pop("metadata")))


def of_parquet(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    table = parquet.read_table(path)
    columns = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    assert table.schema.field("features").type == pa.list_(pa.float32(), 108)
    columns["features"] = columns["features"].astype(np.float32)
    return columns, json.loads(table.schema.metadata[b"ebclab"])


@pytest.mark.parametrize(("file", "read"), [("out.npz", of_npz), ("out.parquet", of_parquet)])
def test_a_file_has_every_image_with_its_features_and_names(photos, file, read, capsys):
    assert main(["evaluate", "pixels", "--dataset", "folder:photos", "--features", file]) == 0
    assert f"{file}: 12 images, 108 features each" in capsys.readouterr().out
    columns, facts = read(file)
    assert set(columns) == {"features", "part", "label", "class", "key", "image"}
    assert columns["features"].dtype == np.float32
    paths = [str(name) for name in columns["image"]]
    assert sorted(paths) == sorted(FILES)
    assert [name.split("/")[0] for name in paths] == columns["part"].tolist() == ["train"] * 6 + ["test"] * 6
    assert [name.split("/")[1] for name in paths] == columns["class"].tolist()
    assert columns["label"].tolist() == [["cat", "dog"].index(name.split("/")[1]) for name in paths]
    assert len(set(zip(columns["part"].tolist(), columns["key"].tolist(), strict=True))) == 12
    for row, name in zip(columns["features"], paths, strict=True):
        channels = photos[name].transpose(2, 0, 1).reshape(3, 36) / 255.0
        expected = [(x - MEAN[c]) / STD[c] for c, channel in enumerate(channels) for x in channel.tolist()]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)
    assert (facts["encoder"], facts["origin"], facts["step"]) == ("pixels", "made up", None)
    assert facts["preprocessing"]["mean"] == list(MEAN)
    assert (facts["dataset"], facts["class_names"]) == ("folder:photos", ["cat", "dog"])


@pytest.mark.usefixtures("photos")
def test_a_file_has_no_array_but_those_said_with_an_older_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: dict[str, Any] = {}
    monkeypatch.setattr(np, "savez", lambda file, **given: arrays.update(given))  # before 2.1, all names are arrays
    assert main(["evaluate", "pixels", "--dataset", "folder:photos", "--features", "out.npz"]) == 0
    assert set(arrays) == {"features", "part", "label", "class", "key", "image", "metadata"}


@pytest.mark.usefixtures("photos")
def test_a_folder_without_parts_is_one_part() -> None:
    assert main(["evaluate", "pixels", "--dataset", "folder:photos/test", "--features", "out.npz"]) == 0
    columns, _ = of_npz("out.npz")
    assert columns["part"].tolist() == ["train"] * 6


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--features", "out.txt"], "--features: a file on a disk, .npz or .parquet, is needed, got out.txt"),
        (["--features", "s3://bucket/x.npz"], "--features: a file on a disk, .npz or .parquet, is needed, got s3://"),
        (["--features", "no/where.npz"], "--features: no such folder, got "),
        (["--features", "photos.npz"], "--features: cannot be written, got "),
        (["--features", "x.npz", "--only", "knn"], "--only: is for a card, got knn with --features;"),
        (["--features", "x.npz", "--dataset", "digits"], "--dataset: one for each file of --features, got 2;"),
        (["--features", "x.npz", "--json"], "--json: prints a card"),
        (["--features", "x.npz", "--train-limit", "-1"], "--train-limit: must be at least 0"),
    ],
)
def test_what_cannot_be_written_is_a_sentence(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("photos.npz").mkdir()
    assert main(["evaluate", "pixels", "--dataset", "folder:photos", *more]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert "Traceback" not in error
    assert not [name for name in os.listdir() if name.startswith((".", "x."))]
