"""The contact sheet: original tiles show the bytes of the set, and a failure leaves nothing behind."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ebclab.config.sections import ViewsConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.views.preview import draw_views
from ebclab.errors import UserError

COLOURS = torch.tensor([[200, 30, 40], [20, 180, 60], [40, 50, 220]], dtype=torch.uint8)


def coloured(side: int = 8) -> ImageSet:
    """Three classes, four images each, every image in the one colour of its class."""
    labels = torch.arange(3).repeat_interleave(4)
    images = COLOURS[labels].view(-1, 3, 1, 1).expand(-1, 3, side, side).contiguous()
    names = ("red", "green", "blue")
    return ImageSet("coloured", images, labels, torch.arange(12), names, (0.4, 0.3, 0.5), (0.2, 0.1, 0.3))


def count_of(picture: np.ndarray, colour: torch.Tensor) -> int:
    return int((picture == colour.numpy()).all(axis=2).sum())


@pytest.mark.parametrize(("side", "tile"), [(8, 64), (28, 84), (64, 64), (70, 70)])
def test_every_class_has_its_row_of_tiles_in_its_own_colour(tmp_path: Path, side: int, tile: int) -> None:
    path = tmp_path / "views.png"
    draw_views(coloured(side), ViewsConfig(), path, count=3, views=4)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture)
    for colour in COLOURS:
        assert count_of(pixels, colour) == 5 * tile * tile  # the image and four views


def test_views_of_another_size_and_of_one_channel_are_drawn(tmp_path: Path) -> None:
    images = torch.full((2, 1, 8, 8), 77, dtype=torch.uint8)
    grey = ImageSet("grey", images, torch.tensor([-1, 5]), torch.arange(2), (), (0.1,), (0.5,))
    draw_views(grey, ViewsConfig(image_size=20, normalisation="half"), tmp_path / "views.png", count=9, views=1)
    with Image.open(tmp_path / "views.png") as picture:
        pixels = np.asarray(picture)
    assert count_of(pixels, torch.tensor([77, 77, 77])) == 2 * (64 * 64 + 80 * 80)


def test_missing_folders_are_made_and_an_old_picture_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "views.png"
    draw_views(coloured(), ViewsConfig(), path, count=1)
    before = path.read_bytes()
    draw_views(coloured(), ViewsConfig(), path, count=2)
    assert path.read_bytes() != before
    assert [entry.name for entry in path.parent.iterdir()] == ["views.png"]


def test_the_same_seed_gives_the_same_picture(tmp_path: Path) -> None:
    config = ViewsConfig(crop_scale_min=0.2, flip_rate=0.5, noise_std=0.2)
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        draw_views(coloured(), config, tmp_path / f"{name}.png", seed=seed)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "again.png").read_bytes()
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()


def test_a_path_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "folder.png", tmp_path / "file" / "views.png"):
        with pytest.raises(UserError, match=f"{path}: the picture cannot be written, got "):
            draw_views(coloured(), ViewsConfig(), path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder.png"]
