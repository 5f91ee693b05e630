"""Image folders: sub-folders are classes, keys are stable, damage and mixed sizes are named."""

import errno
import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_images import encoded, pixels, put
from PIL import Image

from ebclab.data.photograph import Reading
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError


def save(path: Path, array: np.ndarray) -> None:
    put(path, encoded(array))


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


def test_images_come_in_the_order_of_their_paths_with_the_classes_of_training(pets: Path) -> None:
    train = load_split(f"folder:{pets}", None, "train")
    files = ["cat/deep/a.png", "cat/z.png", "dog/b.png", "loose.png", "owl/o.png"]
    expected = torch.stack(
        [torch.from_numpy(np.array(Image.open(pets / "train" / name))).permute(2, 0, 1) for name in files]
    )
    assert torch.equal(train.images, expected)
    assert train.class_names == ("cat", "dog", "owl")
    assert train.labels.tolist() == [0, 0, 1, -1, 2]
    assert load_split(f"folder:{pets}", None, "test").labels.tolist() == [2]


def test_keys_depend_neither_on_the_folder_of_the_split_nor_on_other_images(pets: Path) -> None:
    train = load_split(f"folder:{pets}", None, "train")
    assert torch.equal(load_split(f"folder:{pets / 'train'}", None, "train").keys, train.keys)
    save(pets / "train/ant/new.png", pixels(20))
    assert set(train.keys.tolist()) < set(load_split(f"folder:{pets}", None, "train").keys.tolist())


def test_two_parts_of_one_split_with_one_path_are_refused(pets: Path) -> None:
    save(pets / "Train/dog/new.png", pixels(20))
    assert len(load_split(f"folder:{pets}", None, "train")) == 6
    save(pets / "Train/dog/b.png", pixels(21))
    message = r"two train parts with a file dog/b\.png, got Train/dog/b\.png and train/dog/b\.png; move one"
    with pytest.raises(DataError, match=message):
        load_split(f"folder:{pets}", None, "train")


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
    save(pets.joinpath("train/cat", *"abcdefghijklmnopqrstuvwxyz0123456789") / "deep.png", pixels(0))  # not a circle
    (pets / "train/bird").symlink_to(pets / "test/owl")
    (pets / "train/dog/link.png").symlink_to(pets / "train/cat/z.png")
    (pets / "train/dog/nowhere.png").symlink_to(pets / "nothing.png")
    found = load_split(f"folder:{pets}/train", None, "train")
    assert found.class_names == ("bird", "cat", "dog", "owl")
    assert len(found) == 8
    (pets / "train/cat/all").symlink_to(pets)
    with pytest.raises(DataError, match=r"/train: a link in it leads to a folder above itself, .* got 32 links within"):
        load_split(f"folder:{pets}/train", None, "train")


def test_resize_takes_the_largest_central_square(tmp_path: Path) -> None:
    array = np.zeros((8, 24, 3), np.uint8)
    array[:, 8:16] = 200  # the central square
    save(tmp_path / "a.png", array)
    save(tmp_path / "b.png", pixels(1, 9, 7))
    images = load_split(f"folder:{tmp_path}", None, "train", Reading(resize=4)).images
    assert images.shape == (2, 3, 4, 4)
    assert bool((images[0] == 200).all())


def test_a_file_names_all_images_that_were_left_out(tmp_path, caplog, monkeypatch):
    """The same file again, also if it is another user's; if it cannot be written, images are read without it."""
    temporary, images = tmp_path / "temporary", tmp_path / "images"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    save(images / "a.png", pixels(0))
    for number in range(7):
        (images / f"b{number}.png").write_bytes(b"nothing")
    load_split(f"folder:{images}", None, "train", Reading(skip_corrupt=True))
    (file,) = temporary.iterdir()
    listed = [json.loads(line) for line in file.read_text().splitlines()]
    reason = {"kind": "of no known format", "reason": "a file of no known format"}
    assert listed == [{"name": f"{images}/b{number}.png", **reason} for number in range(7)]

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "replace", refused)
    load_split(f"folder:{images}", None, "train", Reading(skip_corrupt=True))
    assert caplog.text.count(f"all are named in {file}") == 2
    file.unlink()
    load_split(f"folder:{images}", None, "train", Reading(skip_corrupt=True))
    assert f"the others are not named, {file} cannot be written: Operation not permitted" in caplog.text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.tiff": encoded(np.zeros((4, 4), np.float32), "TIFF")}, r"a\.tiff: not .*, got pixels of mode F"),
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
