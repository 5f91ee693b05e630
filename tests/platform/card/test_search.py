"""``ebclab search``: the most similar images, by a slow loop over cosines, and what cannot be searched for."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_images import encoded, put
from made_up_images import pixels as made_up_pixels
from torch import nn

from ebclab.card import search as module
from ebclab.card.request import SearchRequest
from ebclab.card.search import search
from ebclab.card.subject import Subject
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError, EbclabError, UserError


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
