"""Features of a dataset: most similar images by a slow loop over cosines, and files that NumPy and pyarrow read."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from made_up_images import encoded, put
from made_up_images import pixels as made_up_pixels
from pyarrow import parquet
from torch import nn

from ebclab.card import search as module
from ebclab.card.request import SearchRequest
from ebclab.card.search import cosines_apart, search
from ebclab.card.subject import Subject
from ebclab.cli import main
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError, EbclabError, UserError

from .conftest import FILES


@pytest.fixture
def photos(files: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Let the encoder be the pixels themselves."""
    plain = Preprocessing(6, (0.0,) * 3, (1.0,) * 3)
    subject = Subject("pixels", "pixels", nn.Flatten(), plain, 3, "pixels", "a digest")
    monkeypatch.setattr(module, "open_subject", lambda *_: subject)
    return files


def by_cosine(query: np.ndarray, images: dict[str, np.ndarray]) -> list[tuple[str, float]]:
    """Return files with the cosine of their pixels to those of the query, in double precision, the largest first."""

    def cosine(image: np.ndarray) -> float:
        pairs = [(float(a), float(b)) for a, b in zip(image.ravel(), query.ravel(), strict=True)]
        squares = sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs)
        return sum(a * b for a, b in pairs) / math.sqrt(squares)

    return sorted(((file, cosine(image)) for file, image in images.items()), key=lambda each: -each[1])


def test_images_of_both_parts_are_found_by_cosine_with_their_files(photos: dict[str, np.ndarray]) -> None:
    query = photos["test/dog/1.png"]
    put(Path("query.png"), encoded(query))
    put(Path("large.png"), encoded(query.repeat(3, axis=0).repeat(3, axis=1)))
    found = search(SearchRequest("pixels", ("query.png", "large.png"), dataset="folder:photos", count=5))
    rows = [(str(row[3]), str(row[2]), float(getattr(row[1], "value", 0))) for row in found.tables[0].rows]
    expected = by_cosine(query, photos)[:5]
    assert [file for file, _, _ in rows] == [file for file, _ in expected]
    assert [value for _, _, value in rows] == pytest.approx([value for _, value in expected], abs=1e-6)
    assert [kind for _, kind, _ in rows] == [file.split("/")[1] for file, _ in expected]
    assert str(found.tables[1].rows[0][3]) == "test/dog/1.png"  # scaled to the size of the others
    first = {"searched for": "query.png", "rank": 1, "similarity": rows[0][2]}
    first |= {"class": "dog", "image": "test/dog/1.png"}
    assert json.loads(Path("search.json").read_text(encoding="utf-8"))[0] == first
    assert Path("search.csv").read_text(encoding="utf-8").count("\n") == 1 + 2 * 5
    assert Path(found.page).read_text(encoding="utf-8").count("<tr>") == 2 * (1 + 5)


@pytest.mark.parametrize(("folder", "again"), [("card", []), ("photos/test/dog/1.png/card", ["train", "test"])])
def test_features_of_a_run_are_kept_for_the_next_search_where_its_folder_can_be_written(
    photos: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, folder: str, again: list[str]
) -> None:
    computed: list[str] = []

    def features(subject: Subject, images: torch.Tensor, on_progress: object, what: str) -> torch.Tensor:
        computed.append(what.split()[2])
        return images.flatten(1).float()

    monkeypatch.setattr(Subject, "features", features)
    monkeypatch.setattr(Subject, "card_folder", lambda self, dataset: Path(folder))
    put(Path("query.png"), encoded(photos["test/dog/1.png"]))
    request = SearchRequest("pixels", ("query.png",), dataset="folder:photos", count=5)
    first, second = search(request), search(request)
    assert computed == ["train", "test", "given", *again, "given"]
    assert first.tables[0].rows == second.tables[0].rows


def test_a_folder_without_parts_is_searched_whole(photos: dict[str, np.ndarray]) -> None:
    put(Path("query.png"), encoded(photos["train/dog/1.png"]))
    (table,) = search(SearchRequest("pixels", ("query.png",), dataset="folder:photos/train")).tables
    assert sorted(str(row[3]) for row in table.rows) == [
        file.removeprefix("train/") for file in sorted(photos) if file.startswith("train/")
    ]
    assert str(table.rows[0][3]) == "dog/1.png"


def test_a_photograph_is_decoded_as_those_of_the_dataset(photos: dict[str, np.ndarray]) -> None:
    subject = module.open_subject("pixels")
    reduced = replace(subject.preprocessing, read_size=6, decoding="reduced")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "open_subject", lambda *_: replace(subject, preprocessing=reduced))
        for seed in range(3):
            put(Path("large", f"{seed}.jpg"), encoded(made_up_pixels(seed, 60, 60), "JPEG"))
        (table,) = search(SearchRequest("pixels", ("large/1.jpg",), dataset="folder:large")).tables
    assert str(table.rows[0][3]) == "1.jpg"
    assert float(getattr(table.rows[0][1], "value", 0)) == pytest.approx(1, abs=1e-6)


def test_images_that_are_not_square_are_compared_whole(photos: dict[str, np.ndarray]) -> None:
    for seed in range(3):
        put(Path("wide", f"{seed}.png"), encoded(made_up_pixels(seed, 6, 10)))
    put(Path("larger.png"), encoded(made_up_pixels(2, 6, 10).repeat(2, axis=0).repeat(2, axis=1)))
    files = ("wide/1.png", "larger.png")
    one, other = search(SearchRequest("pixels", files, dataset="folder:wide")).tables
    assert (str(one.rows[0][3]), str(other.rows[0][3])) == ("1.png", "2.png")
    assert float(getattr(one.rows[0][1], "value", 0)) == pytest.approx(1, abs=1e-6)
    assert float(getattr(other.rows[0][1], "value", 0)) == pytest.approx(1, abs=0.01)  # scaled with rounding


def test_photographs_of_several_sizes_are_scaled_to_what_the_encoder_takes(photos: dict[str, np.ndarray]) -> None:
    for seed, (height, width) in enumerate([(8, 12), (12, 8), (9, 9)]):
        put(Path("mixed", f"{seed}.png"), encoded(made_up_pixels(seed, height, width)))
    (table,) = search(SearchRequest("pixels", ("mixed/1.png",), dataset="folder:mixed")).tables
    assert str(table.rows[0][3]) == "1.png"
    assert float(getattr(table.rows[0][1], "value", 0)) == pytest.approx(1, abs=1e-6)


def test_the_test_part_may_have_images_of_another_size(photos: dict[str, np.ndarray]) -> None:
    for part, side in (("train", 6), ("test", 8)):
        for seed in range(2):
            put(Path("sizes", part, f"{seed}.png"), encoded(made_up_pixels(seed + side, side, side)))
    (table,) = search(SearchRequest("pixels", ("sizes/train/1.png",), dataset="folder:sizes")).tables
    assert str(table.rows[0][3]) == "train/1.png"
    assert len(table.rows) == 4


def test_images_that_are_no_files_are_named_by_their_place(photos: dict[str, np.ndarray]) -> None:
    image = torch.from_numpy(next(iter(photos.values())))
    put(Path("query.png"), encoded(image.numpy()))
    (table,) = search(SearchRequest("pixels", ("query.png",), dataset="digits", count=1)).tables
    assert str(table.rows[0][3]).startswith("train ")


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        (SearchRequest("pixels", ("no.png",), "folder:photos"), UserError, "IMAGE: cannot be read, got no.png"),
        (
            SearchRequest("pixels", ("photos",), "folder:photos"),
            UserError,
            "Is a directory; .* the encoder comes first",
        ),
        (SearchRequest("pixels", ("text.png",), "folder:photos"), DataError, "IMAGE: text.png: not a readable image"),
        (SearchRequest("pixels", ("text.png",), "folder:photos", count=0), UserError, "--count: must be at least 1"),
        (SearchRequest("pixels", ("text.png",), "folder:photos", to="x.txt"), UserError, "--to: not a page, got x.txt"),
        (SearchRequest("pixels", (FILE := "photos/train/cat/0.png",)), UserError, "--dataset: must be given"),
        (SearchRequest("pixels", (FILE,), "folder:none"), DataError, "none"),
    ],
)
@pytest.mark.usefixtures("photos")
def test_what_cannot_be_searched_for_is_refused(request_: SearchRequest, error: type[EbclabError], said: str) -> None:
    put(Path("text.png"), "no image")
    with pytest.raises(error, match=said):
        search(request_)


MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.5, 0.2)


@pytest.fixture
def normalised(files: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
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
def test_a_file_has_every_image_with_its_features_and_names(normalised, file, read, capsys):
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
        channels = normalised[name].transpose(2, 0, 1).reshape(3, 36) / 255.0
        expected = [(x - MEAN[c]) / STD[c] for c, channel in enumerate(channels) for x in channel.tolist()]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)
    assert (facts["encoder"], facts["origin"], facts["step"]) == ("pixels", "made up", None)
    assert facts["preprocessing"]["mean"] == list(MEAN)
    assert (facts["dataset"], facts["class_names"]) == ("folder:photos", ["cat", "dog"])


@pytest.mark.usefixtures("normalised")
def test_a_file_has_no_array_but_those_said_with_an_older_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: dict[str, Any] = {}
    monkeypatch.setattr(np, "savez", lambda file, **given: arrays.update(given))  # before 2.1, all names are arrays
    assert main(["evaluate", "pixels", "--dataset", "folder:photos", "--features", "out.npz"]) == 0
    assert set(arrays) == {"features", "part", "label", "class", "key", "image", "metadata"}


@pytest.mark.usefixtures("normalised")
def test_a_folder_without_parts_is_one_part() -> None:
    assert main(["evaluate", "pixels", "--dataset", "folder:photos/test", "--features", "out.npz"]) == 0
    columns, _ = of_npz("out.npz")
    assert columns["part"].tolist() == ["train"] * 6


@pytest.mark.usefixtures("normalised")
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


@pytest.mark.parametrize(
    ("cosines", "shown"),
    [
        ([1.0, 0.25], ["1.000", "0.250"]),
        ([0.99991, 0.99989, 0.99989], ["0.99991", "0.99989", "0.99989"]),
        ([0.99999992, 0.99999991], ["1.000000", "1.000000"]),
    ],
)
def test_cosines_have_as_many_digits_as_tell_them_apart_up_to_the_exact_ones(cosines, shown):
    assert cosines_apart(cosines) == shown


def test_why_images_of_a_prepared_set_have_no_file_names_is_said(photos: dict[str, np.ndarray]) -> None:
    put(Path("query.png"), encoded(photos["train/dog/1.png"]))
    every = np.stack([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in photos.values()], axis=0)
    columns = {"image": pa.FixedShapeTensorArray.from_numpy_ndarray(every), "label": np.arange(len(every)) % 2}
    parquet.write_table(pa.table(columns), "set.parquet")
    found = search(SearchRequest("pixels", ("query.png",), dataset="parquet:set.parquet"))
    assert str(found.tables[0].rows[0][3]) == f"train {[*photos].index('train/dog/1.png')}"
    assert found.note.startswith("A prepared set keeps no file names: ")
    assert found.note in Path(found.page).read_text(encoding="utf-8")
    assert search(SearchRequest("pixels", ("query.png",), dataset="folder:photos")).note == ""


def test_one_file_where_several_may_be_is_no_list_of_letters() -> None:
    with pytest.raises(UserError, match=r"^IMAGE\.\.\.: a tuple is needed, got 'query\.png'; write \('query\.png',\)$"):
        search(SearchRequest("pixels", "query.png"))  # type: ignore[arg-type]
