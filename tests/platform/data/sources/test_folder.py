"""Image folders: sub-folders are classes, keys are stable, damage and mixed sizes are named."""

from __future__ import annotations

import errno
import hashlib
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_images import encoded, pixels, put
from PIL import Image

from ebclab.data import photograph
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.load import load_split, splits_of
from ebclab.errors import DataError

GREY = Reading(colour="grey")


def save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array.squeeze()).save(path)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three classes, one of them in the test part only as far as images go, and an image of no class."""
    for seed, name in enumerate(["dog/b.png", "cat/z.png", "cat/deep/a.png", "owl/o.png", "loose.png"]):
        save(tmp_path / "train" / name, pixels(seed))
    save(tmp_path / "test/owl/o.png", pixels(9))
    (tmp_path / "train/cat/notes.txt").write_text("no image")
    (tmp_path / "train/.hidden").mkdir()
    save(tmp_path / "train/.hidden/x.png", pixels(8))
    return tmp_path


def test_images_come_in_the_order_of_their_paths_with_the_pixels_of_their_files(pets: Path) -> None:
    train = load_split(f"folder:{pets}", None, "train")
    files = ["cat/deep/a.png", "cat/z.png", "dog/b.png", "loose.png", "owl/o.png"]
    expected = torch.stack(
        [torch.from_numpy(np.array(Image.open(pets / "train" / name))).permute(2, 0, 1) for name in files]
    )
    assert torch.equal(train.images, expected)
    assert train.class_names == ("cat", "dog", "owl")
    assert train.labels.tolist() == [0, 0, 1, -1, 2]


def test_a_key_is_the_hash_of_the_path_within_the_split(pets: Path) -> None:
    train = load_split(f"folder:{pets}", None, "train")
    digest = hashlib.blake2b(b"dog/b.png", digest_size=8).digest()
    assert train.keys[2] == int.from_bytes(digest, "little", signed=True)
    assert torch.equal(load_split(f"folder:{pets / 'train'}", None, "train").keys, train.keys)
    save(pets / "train/ant/new.png", pixels(20))
    assert set(train.keys.tolist()) < set(load_split(f"folder:{pets}", None, "train").keys.tolist())


def test_two_parts_of_one_split_with_one_path_are_refused(pets: Path) -> None:
    save(pets / "Train/dog/new.png", pixels(20))
    assert len(load_split(f"folder:{pets}", None, "train")) == 6
    save(pets / "Train/dog/b.png", pixels(21))
    message = (
        r"two train parts with a file dog/b\.png, got Train/dog/b\.png and train/dog/b\.png; move one of them away"
    )
    with pytest.raises(DataError, match=message):
        load_split(f"folder:{pets}", None, "train")


def test_test_images_have_the_classes_of_the_training_part(pets: Path) -> None:
    assert load_split(f"folder:{pets}", None, "test").labels.tolist() == [2]


def test_without_parts_all_images_are_training_images(tmp_path: Path) -> None:
    save(tmp_path / "test/a.png", pixels(0))  # a class of this name, since nothing is called train
    save(tmp_path / "b.png", pixels(1))
    train = load_split(f"folder:{tmp_path}", None, "train")
    assert (train.class_names, train.labels.tolist()) == (("test",), [-1, 0])
    assert splits_of(f"folder:{tmp_path}") == ("train",)
    with pytest.raises(DataError, match="has no test images, got nothing called test, testing, val, valid"):
        load_split(f"folder:{tmp_path}", None, "test")


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "CMYK"])
def test_any_8_bit_image_is_read_as_colour_or_grey(tmp_path: Path, mode: str) -> None:
    picture = Image.fromarray(pixels(0)).convert(mode)
    picture.save(tmp_path / "a.tiff")
    for reading, target in ((Reading(), "RGB"), (GREY, "L")):
        expected = np.atleast_3d(np.array(picture.convert(target)))
        images = load_split(f"folder:{tmp_path}", None, "train", reading).images
        assert np.array_equal(images[0].permute(1, 2, 0).numpy(), expected)


def test_a_bomb_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photograph, "MOST_PIXELS", 29)
    save(tmp_path / "a.png", pixels(0))  # 5 x 6
    with pytest.raises(DataError) as caught:
        load_split(f"folder:{tmp_path}", None, "train")
    assert str(caught.value) == (
        f"{tmp_path}/a.png: not a readable image, got 5 x 6 pixels, more than the 134,217,728 that are decoded; "
        "make it smaller, or skip such images with data.skip_corrupt=true"
    )


def test_names_in_any_script_make_classes_and_keys(tmp_path: Path) -> None:
    names = ["猫/三毛.png", "γάτα/ψ.png", "кошка/ё b.png", "قطة/١.png", "🐈/é.png", "e\u0301/%20.png"]
    for seed, name in enumerate(names):
        save(tmp_path / name, pixels(seed))
    train = load_split(f"folder:{tmp_path}", None, "train")
    assert train.class_names == tuple(sorted(name.split("/")[0] for name in names))
    assert train.labels.tolist() == [0, 1, 2, 3, 4, 5]  # one image a class
    hashes = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in sorted(names)]
    assert train.keys.tolist() == [int.from_bytes(each, "little", signed=True) for each in hashes]
    assert all(  # by the numbers of the seeds, whatever their order
        np.array_equal(image.permute(1, 2, 0).numpy(), pixels(names.index(name)))
        for image, name in zip(train.images, sorted(names), strict=True)
    )


def test_links_are_followed_but_in_a_circle(pets: Path) -> None:
    (pets / "train/bird").symlink_to(pets / "test/owl")
    (pets / "train/dog/link.png").symlink_to(pets / "train/cat/z.png")
    (pets / "train/dog/nowhere.png").symlink_to(pets / "nothing.png")
    found = load_split(f"folder:{pets}/train", None, "train")
    assert found.class_names == ("bird", "cat", "dog", "owl")
    assert len(found) == 7
    (pets / "train/cat/all").symlink_to(pets)
    with pytest.raises(DataError, match=r"/train: a link in it leads to a folder above itself, .* got 32 links within"):
        load_split(f"folder:{pets}/train", None, "train")


def test_folders_may_lie_deep_in_each_other(tmp_path: Path) -> None:
    save(tmp_path.joinpath("cat", *"abcdefghijklmnopqrstuvwxyz0123456789") / "a.png", pixels(0))
    assert load_split(f"folder:{tmp_path}", None, "train").class_names == ("cat",)


def test_thousands_of_empty_folders_are_no_classes(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number:04}").mkdir()
    save(tmp_path / "1234/a.png", pixels(0))
    start = time.process_time()
    assert load_split(f"folder:{tmp_path}", None, "train").class_names == ("1234",)
    assert time.process_time() - start < 2


def test_images_lie_upright(tmp_path: Path) -> None:
    array = pixels(0)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown after a quarter turn clockwise
    Image.fromarray(array).save(tmp_path / "a.png", exif=exif)
    image = load_split(f"folder:{tmp_path}", None, "train").images[0]
    assert np.array_equal(image.permute(1, 2, 0).numpy(), np.rot90(array, -1))


def test_resize_takes_the_largest_central_square(tmp_path: Path) -> None:
    array = np.zeros((8, 24, 3), np.uint8)
    array[:, 8:16] = 200  # the central square
    save(tmp_path / "a.png", array)
    save(tmp_path / "b.png", pixels(1, 9, 7))
    images = load_split(f"folder:{tmp_path}", None, "train", Reading(resize=4)).images
    assert images.shape == (2, 3, 4, 4)
    assert bool((images[0] == 200).all())


def test_a_file_names_all_images_that_were_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, images = tmp_path / "temporary", tmp_path / "images"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    save(images / "a.png", pixels(0))
    for number in range(7):
        (images / f"b{number}.png").write_bytes(b"nothing")
    for _ in range(2):  # again: the same file
        load_split(f"folder:{images}", None, "train", Reading(skip_corrupt=True))
    (file,) = temporary.iterdir()
    assert f"all are named in {file}" in caplog.text
    listed = [json.loads(line) for line in file.read_text().splitlines()]
    reason = {"kind": "of no known format", "reason": "a file of no known format"}
    assert listed == [{"name": f"{images}/b{number}.png", **reason} for number in range(7)]


def test_a_list_of_another_user_or_a_folder_that_cannot_be_written_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, images = tmp_path / "temporary", tmp_path / "images"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    save(images / "a.png", pixels(0))
    for number in range(6):
        (images / f"b{number}.png").write_bytes(b"nothing")
    load_split(f"folder:{images}", None, "train", Reading(skip_corrupt=True))

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "replace", refused)
    load_split(f"folder:{images}", None, "train", Reading(skip_corrupt=True))
    (file,) = temporary.iterdir()
    assert caplog.text.count(f"all are named in {file}") == 2
    file.unlink()
    load_split(f"folder:{images}", None, "train", Reading(skip_corrupt=True))
    assert f"the others are not named, {file} cannot be written: Operation not permitted" in caplog.text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"a.tiff": encoded(np.zeros((4, 4), np.float32), "TIFF")},
            r"a\.tiff: not .*, got pixels of mode F",
        ),
        (
            {"a.png": encoded(pixels(0)), "b.png": encoded(pixels(1, 9, 7))},
            r"data.resize: .* of one size, got .*/a\.png of 5x6 and .*/b\.png of 7x9 pixels; set data.resize",
        ),
        ({"a.png": b"nothing"}, "none of its images can be decoded"),
    ],
)
def test_images_that_do_not_fit_together_are_refused(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, content in files.items():
        put(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        load_split(f"folder:{tmp_path}", None, "train", Reading(skip_corrupt=message.startswith("none")))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder:{}/none", "data.name: no such folder, got {}/none"),
        ("folder:{}", "data.name: no images in {}, got no file that ends in .png, .jpg"),
        ("folder:", "data.name: folder needs a path, got 'folder:'; write folder:PATH"),
        ("folder", "data.name: folder needs a path, got 'folder'; write folder:PATH"),
        ("folder:ftp://x/y", "data.name: a file alone does not choose which host gets your credentials, or how, got"),
    ],
)
def test_a_folder_that_is_none_is_explained(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(DataError) as caught:
        load_split(name.format(tmp_path), None, "train")
    assert str(caught.value).startswith(message.format(tmp_path))
