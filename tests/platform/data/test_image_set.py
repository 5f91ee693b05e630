"""ImageSet keeps rows together; channel statistics equal the sums written out."""

from __future__ import annotations

import math

import torch

from ebclab.data.image_set import ImageSet, channel_statistics


def numbered(count: int) -> ImageSet:
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(count, 1, 2, 2)
    return ImageSet(
        "numbered", images, torch.arange(count) % 3, torch.arange(count) + 100, ("a", "b", "c"), (0.5,), (1.0,)
    )


def test_rows_takes_image_label_and_key_together_by_index_and_by_mask() -> None:
    data = numbered(6)
    by_index = data.rows(torch.tensor([4, 1]))
    assert len(by_index) == 2
    assert by_index.images[:, 0, 0, 0].tolist() == [4, 1]
    assert by_index.labels.tolist() == [1, 1]
    assert by_index.keys.tolist() == [104, 101]
    assert (by_index.name, by_index.class_names, by_index.mean, by_index.std) == (
        "numbered",
        ("a", "b", "c"),
        (0.5,),
        (1.0,),
    )
    by_mask = data.rows(torch.tensor([False, True, False, False, True, False]))
    assert by_mask.keys.tolist() == [101, 104]


def test_channel_statistics_equal_a_loop_over_pixels() -> None:
    images = torch.randint(0, 256, (7, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = channel_statistics(images)
    for channel in range(3):
        pixels = [int(value) / 255 for value in images[:, channel].flatten()]
        expected = math.fsum(pixels) / len(pixels)
        variance = math.fsum((pixel - expected) ** 2 for pixel in pixels) / len(pixels)
        assert math.isclose(mean[channel], expected, rel_tol=1e-13)
        assert math.isclose(std[channel], math.sqrt(variance), rel_tol=1e-12)


def test_a_constant_image_has_its_grey_level_and_no_spread() -> None:
    mean, std = channel_statistics(torch.full((2, 1, 3, 3), 51, dtype=torch.uint8))
    assert math.isclose(mean[0], 0.2, rel_tol=1e-15)
    assert std[0] < 1e-7  # the square root of a rounding error
