"""Pictures of images in rows show every pixel, caption, name and frame where it belongs."""

import numpy
import pytest
import torch

from ebclab.data.image_grid import Tile, as_picture, draw_grid

RED, GREY = (255, 0, 0), torch.full((1, 8, 8), 77, dtype=torch.uint8)


def drawn(*rows: list[Tile], **more: object) -> numpy.ndarray:
    return numpy.asarray(draw_grid(rows, **more))  # type: ignore[arg-type]


def places_of(picture: numpy.ndarray, colour: tuple[int, int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    return numpy.nonzero((picture == colour).all(axis=2))


@pytest.mark.parametrize(
    ("shape", "least", "most", "size"),
    [
        ((1, 8, 8), 64, 0, (64, 64)),
        ((3, 28, 30), 64, 0, (90, 84)),
        ((4, 70, 70), 64, 0, (70, 70)),
        ((3, 40, 80), 1, 20, (20, 10)),
    ],
)
def test_an_image_has_a_whole_multiple_of_its_size_or_is_shrunk(shape, least, most, size):
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    picture = as_picture(pixels, least, most)
    assert picture.size == size
    if not most:
        factor = size[0] // shape[2]
        colours = (pixels if len(pixels) > 1 else pixels.expand(3, -1, -1))[:3].permute(1, 2, 0)
        assert (numpy.asarray(picture)[::factor, ::factor] == colours.numpy()).all()


def test_images_stand_in_rows_and_columns_in_the_middle_of_equal_cells() -> None:
    def lit(row: int, column: int, side: int) -> Tile:
        pixels = torch.zeros(3, side, side, dtype=torch.uint8)
        pixels[0] = 255 * (row == 2) * (column == 1)
        return Tile(pixels)

    rows = [[lit(row, column, 96 if row == 2 and column == 1 else 100) for column in range(2)] for row in range(3)]
    down, along = places_of(drawn(*rows), RED)
    assert len(down) == 96 * 96
    assert (down.min(), along.min()) == (20 + 2 * 112 + 2, 20 + 112 + 2)
    assert places_of(drawn(*rows, is_first_apart=True), RED)[1].min() == along.min() + 12


@pytest.mark.parametrize(
    ("more", "above", "left"),
    [
        ({}, 20, 20),
        ({"heads": ["a", "b"]}, 36, 20),
        ({"title": ("t", "of one line")}, 20 + 26 + 16 + 12, 20),
    ],
)
def test_what_is_written_stands_outside_the_images(more: dict[str, object], above: int, left: int) -> None:
    down, along = places_of(drawn([Tile(GREY), Tile(GREY)], **more), (77, 77, 77))
    assert len(down) == 2 * 96 * 96
    assert (down.min(), along.min()) == (above, left)


def captions_differ(one: list[str], other: list[str]) -> tuple[numpy.ndarray, numpy.ndarray]:
    pictures = [drawn([Tile(GREY, caption) for caption in captions]) for captions in (one, other)]
    return numpy.nonzero((pictures[0] != pictures[1]).any(axis=2))


def test_a_caption_is_below_its_image_and_long_ones_make_room() -> None:
    down, along = captions_differ(["E 1", "E 2"], ["E 1", "E 4"])
    assert down.min() >= 20 + 96
    assert along.min() >= 20 + 96 + 12
    widths = [drawn([Tile(GREY, text), Tile(GREY, text)]).shape[1] for text in ("E 1", "E 1" * 20)]
    assert widths[1] > widths[0] + 200


def test_long_names_of_rows_get_more_room_and_very_long_ones_are_cut() -> None:
    widths = [drawn([Tile(GREY)], names=[name]).shape[1] for name in ("cat", "German pointer", "x" * 60, "x" * 600)]
    assert widths[0] < widths[1] < widths[2] <= 20 + 240 + 12 + 96 + 20
    assert widths[3] == widths[2]


def test_a_frame_has_its_colour_and_hides_no_pixel() -> None:
    picture = drawn([Tile(GREY, frame="#ff0000"), Tile(GREY)])
    assert len(places_of(picture, (77, 77, 77))[0]) == 2 * 96 * 96
    down, along = places_of(picture, RED)
    assert len(down) == 4 * 2 * (96 + 4)
    assert (along.min(), along.max()) == (17, 20 + 96 + 2)
