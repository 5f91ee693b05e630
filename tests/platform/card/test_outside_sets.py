"""Images from outside are none of those that the card is measured on, and fit the encoder."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from torch import nn

from ebclab.card.images import MeasuredSet, named_set, outside_set
from ebclab.card.subject import Subject, open_subject
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import limit
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError, UserError


def subject(channels: int = 1) -> Subject:
    preprocessing = Preprocessing(8, (0.5,) * channels, (0.25,) * channels)
    return Subject("made up", "here", nn.Flatten(), preprocessing, channels, "a test", "d" * 64)


@pytest.fixture(scope="module")
def digits() -> MeasuredSet:
    return named_set("digits", subject(), None)


@pytest.mark.parametrize("name", ["inverted", "rotated"])
def test_altered_images_and_those_that_they_are_told_from_are_halves_of_the_test_set(digits, name):
    found = outside_set(name, subject(), digits, None)
    inside, outside = set(found.inside.keys.tolist()), set(found.outside.keys.tolist())
    assert not inside & outside
    assert inside | outside == set(digits.test.keys.tolist())
    assert 0.35 < len(inside) / len(digits.test) < 0.65
    assert found.kind == "near"
    rows = {int(key): image for key, image in zip(digits.test.keys, digits.test.images, strict=True)}
    for key, image in zip(found.outside.keys[:5].tolist(), found.outside.images, strict=False):
        before = rows[key][0].numpy()
        expected = 255 - before if name == "inverted" else numpy.rot90(before)
        assert numpy.array_equal(image[0].numpy(), expected)
    for key, image in zip(found.inside.keys.tolist(), found.inside.images, strict=True):
        assert torch.equal(image, rows[key])


@pytest.mark.parametrize(("train", "test"), [(0, 0), (500, 100), (0, 100), (500, 0)])
def test_images_of_the_card_or_some_of_them_are_not_outside(digits: MeasuredSet, train: int, test: int) -> None:
    sentence = "--ood: near=digits has the images that the card is measured on; name another"
    few = limit(digits.train, train), limit(digits.test, test)
    for measured in (MeasuredSet("digits", *few), MeasuredSet("mine", *reversed(few))):
        with pytest.raises(DataError, match=sentence):
            outside_set("near=digits", subject(), measured, None)


def test_a_folder_without_a_test_part_is_not_outside_of_what_is_held_out_of_it(tmp_path: Path) -> None:
    pixels = numpy.random.default_rng(0)
    for number in range(40):
        place = tmp_path / "set" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.integers(0, 256, (8, 8), dtype=numpy.uint8)).save(place / f"{number}.png")
    name = f"folder:{tmp_path}/set"
    measured = named_set(name, subject(), None)
    assert measured.tests_held_out
    with pytest.raises(DataError, match="has the images that the card is measured on"):
        outside_set(name, subject(), measured, None)


def colour_folder(place: Path) -> str:
    for part in ("train", "test"):
        for label in ("a", "b"):
            folder = place / part / label
            folder.mkdir(parents=True)
            for number in range(3):
                colours = torch.randint(256, (8, 8, 3), dtype=torch.uint8).numpy()
                Image.fromarray(colours).save(folder / f"{number}.png")
    return f"folder:{place}"


def test_channels_are_those_of_the_encoder_or_a_sentence(digits: MeasuredSet, tmp_path: Path) -> None:
    colours = named_set(colour_folder(tmp_path), subject(3), None)
    assert colours.test.images.shape[1] == 3
    grey = outside_set("digits", subject(3), colours, None).outside  # grey images are repeated
    assert torch.equal(grey.images, digits.test.images.expand(-1, 3, -1, -1))
    assert grey.mean == digits.test.mean * 3


def test_colour_images_are_refused_by_an_encoder_of_grey_ones(digits, monkeypatch):
    from ebclab.card import images

    def load(*args: object, **options: object) -> object:
        parts = (digits.train, digits.test)
        return tuple(replace(part, name="wide", images=part.images.expand(-1, 3, -1, -1)) for part in parts)

    monkeypatch.setattr(images, "load_both", load)
    with pytest.raises(
        DataError, match=r"wide: made up takes images of 1 channel\(s\), got 3; choose a dataset with as many"
    ):
        outside_set("far=wide", subject(1), digits, None)


@pytest.mark.parametrize(
    ("given", "kind"), [("rotated", "near"), ("far=rotated", "far"), ("near=inverted", "near"), ("far=inverted", "far")]
)
def test_altered_images_are_near_unless_somebody_says_far(digits: MeasuredSet, given: str, kind: str) -> None:
    assert outside_set(given, subject(), digits, None).kind == kind


@pytest.mark.parametrize("given", ["folder:{}/kind=rotated", "far=folder:{}/kind=rotated"])
def test_a_place_that_ends_like_an_alteration_is_read(digits: MeasuredSet, tmp_path: Path, given: str) -> None:
    colour_folder(tmp_path / "kind=rotated")
    found = outside_set(given.format(tmp_path), subject(3), named_set("digits", subject(3), None), None)
    assert (found.kind, len(found.outside), len(found.inside)) == ("far", 6, len(digits.test))


def test_all_images_of_a_folder_without_parts_are_outside(digits: MeasuredSet, tmp_path: Path) -> None:
    colour_folder(tmp_path)
    measured = named_set("digits", subject(3), None)
    assert len(outside_set(f"far=folder:{tmp_path / 'train'}", subject(3), measured, None).outside) == 6


@pytest.mark.parametrize("given", ["beside=digits", "=digits", "near=", ""])
def test_what_is_neither_near_nor_far_is_a_sentence(digits: MeasuredSet, given: str) -> None:
    with pytest.raises(UserError, match="--ood: must be NAME, near=NAME or far=NAME, got"):
        outside_set(given, subject(), digits, None)


def test_images_are_scaled_as_asked_for_and_not_as_the_encoders_own_were(tmp_path: Path) -> None:
    draw = numpy.random.default_rng(0)
    for place in range(4):  # the path has train and test, one class each
        for part in ("train", "test"):
            folder = tmp_path / part / f"class{place % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (23, 31), dtype=numpy.uint8)).save(folder / f"{place}.png")
    asked = subject().scaled(12, "bicubic")
    data = SimpleNamespace(data=DataConfig(name="digits", colour="grey", resize=10))
    of_run: Any = SimpleNamespace(config=data, preprocessing=subject().preprocessing)
    by_pillow = []
    for path in sorted((tmp_path / "test").rglob("*.png")):
        with Image.open(path) as picture:
            square = picture.convert("L").crop((4, 0, 27, 23)).resize((12, 12), Image.Resampling.BICUBIC)
            by_pillow.append(torch.from_numpy(numpy.array(square)))
    expected = torch.stack(by_pillow)[:, None]
    for encoder in (asked, replace(asked, trained=of_run)):
        assert torch.equal(named_set(f"folder:{tmp_path}", encoder, None).test.images, expected)
    stored = torch.from_numpy(draw.integers(0, 256, (2, 1, 8, 8), dtype=numpy.uint8))  # of a set of arrays
    larger = [Image.fromarray(each[0].numpy()).resize((12, 12), Image.Resampling.BICUBIC) for each in stored]
    pixels = torch.stack([torch.from_numpy(numpy.array(each)) for each in larger])[:, None].float() / 255
    seen = asked.preprocessing
    torch.testing.assert_close(seen(stored), (pixels - seen.mean[0]) / seen.std[0])
    assert len({asked.digest, subject().digest, subject().scaled(12, "bilinear").digest}) == 3
    assert "12 x 12, bicubic" in asked.origin


def test_the_origin_of_an_encoder_of_timm_says_how_images_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = nn.Conv2d(3, 2, 3), 224, (0.5,) * 3, (0.5,) * 3
    monkeypatch.setattr("ebclab.card.subject.weights_problem", lambda name: None)
    monkeypatch.setattr("ebclab.card.subject.pretrained_encoder", lambda name: loaded)
    known = open_subject("timm/net")
    whole = "timm's weights for net; images resized to 224 x 224, bilinear, without timm's own crop"
    assert (known.origin, known.preprocessing.read_size) == (whole, 0)
    assert known.scaled(0, "bicubic").origin == "timm's weights for net; images scaled to 224 x 224, bicubic"


def test_image_files_of_several_sizes_are_scaled_to_what_the_encoder_takes(tmp_path: Path) -> None:
    draw = numpy.random.default_rng(0)
    for part in ("train", "test"):
        for place, shape in enumerate([(23, 31), (15, 15)]):
            (tmp_path / part).mkdir(exist_ok=True)
            Image.fromarray(draw.integers(0, 256, shape, dtype=numpy.uint8)).save(tmp_path / part / f"{place}.png")
    plain, asked = subject(), subject().scaled(12, "bicubic")
    of_run: Any = SimpleNamespace(
        config=SimpleNamespace(data=DataConfig(name="digits", colour="grey")), preprocessing=plain.preprocessing
    )
    for encoder, side, how in ((plain, 8, "BILINEAR"), (asked, 12, "BICUBIC")):
        with Image.open(tmp_path / "test" / "0.png") as picture:
            square = picture.crop((4, 0, 27, 23)).resize((side, side), Image.Resampling[how])
            expected = torch.from_numpy(numpy.array(square))[None]
        for each in (encoder, replace(encoder, trained=of_run)):
            test = named_set(f"folder:{tmp_path}", each, None).test
            assert test.images.shape == (2, 1, side, side)
            assert (test.images == expected).flatten(1).all(dim=1).any()
    of_run.config.data = DataConfig(name=f"folder:{tmp_path}", colour="grey")
    with pytest.raises(DataError, match=r"data\.resize: the images must be of one size"):
        named_set(None, replace(plain, trained=of_run), None)
