"""The picture of chains shows every pixel and energy where it belongs."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from ebclab.evaluation.chain_picture import draw_chains
from energy_contrast.method import PixelRange
from energy_contrast.sampling_method import ChainTrace


def trace(positions: Tensor) -> ChainTrace:
    moments, chains = positions.shape[:2]
    return ChainTrace(tuple(range(moments)), positions, torch.zeros(moments, chains))


def pixels_of(positions: Tensor, pixel_range: PixelRange) -> numpy.ndarray:
    return numpy.asarray(draw_chains(trace(positions), pixel_range))


def test_black_white_and_what_lies_beyond_them_are_black_and_white() -> None:
    values = torch.tensor([-9.0, -1.0, 0.0, 1.0, 9.0]).view(5, 1, 1, 1, 1).expand(5, 1, 1, 48, 48)
    picture = pixels_of(values, PixelRange((-1.0,), (1.0,)))
    row = picture[80]  # through the middle of the only row of images
    levels = [tuple(row[12 + 108 * moment + 48]) for moment in range(5)]
    assert levels == [(0, 0, 0), (0, 0, 0), (128, 128, 128), (255, 255, 255), (255, 255, 255)]


def test_rows_are_chains_columns_are_moments_and_channels_are_colours() -> None:
    positions = torch.zeros(2, 3, 3, 96, 96)
    positions[1, 2, 0] = 1.0  # the second moment of the third chain is red
    picture = pixels_of(positions, PixelRange((0.0,) * 3, (1.0,) * 3))
    red = (picture == (255, 0, 0)).all(axis=2)
    assert red.sum() == 96 * 96
    rows, columns = numpy.nonzero(red)
    assert rows.min() > 2 * picture.shape[0] / 3 - 30
    assert columns.min() == 12 + 108


def test_the_energies_are_written_under_the_images() -> None:
    positions, steps = torch.ones(3, 1, 1, 8, 8), (0, 20, 40)
    pixel_range = PixelRange((0.0,), (1.0,))
    low = draw_chains(ChainTrace(steps, positions, torch.tensor([[1.0], [2.0], [3.0]])), pixel_range)
    high = draw_chains(ChainTrace(steps, positions, torch.tensor([[1.0], [2.0], [4.0]])), pixel_range)
    differ = (numpy.asarray(low) != numpy.asarray(high)).any(axis=2)
    rows, columns = numpy.nonzero(differ)
    assert rows.min() > 126  # below the image
    assert columns.min() > 12 + 2 * 108  # in the last column
