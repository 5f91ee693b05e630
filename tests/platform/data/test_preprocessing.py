"""Preprocessing against torchvision, and what each normalisation setting means."""

from dataclasses import replace

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from ebclab.config.sections import ViewsConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing, preprocessing_for
from ebclab.errors import DataError


def image_set(images: torch.Tensor) -> ImageSet:
    count, channels = images.shape[:2]
    mean, std = (0.2, 0.3, 0.4)[:channels], (0.5, 0.6, 0.7)[:channels]
    return ImageSet("toy", images, torch.zeros(count).long(), torch.arange(count), (), mean, std)


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (20, 30, 16), (9, 7, 28)])
def test_resizing_and_normalising_agree_with_torchvision(height, width, size):
    images = torch.randint(0, 256, (5, 3, height, width), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    resized = tv.resize(tv.to_dtype(images, torch.float32, scale=True), [size, size], antialias=True)
    expected = tv.normalize(resized, list(mean), list(std))
    torch.testing.assert_close(Preprocessing(size, mean, std)(images), expected, atol=1e-6, rtol=1e-6)


def test_uint8_and_floats_in_zero_to_one_give_the_same():
    images = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    preprocessing = Preprocessing(8, (0.5,), (0.25,))
    assert torch.equal(preprocessing(images), preprocessing(images.double() / 255))


@pytest.mark.parametrize(
    ("normalisation", "low", "high"),
    [
        ("dataset", [-0.2 / 0.5, -0.3 / 0.6, -0.4 / 0.7], [0.8 / 0.5, 0.7 / 0.6, 0.6 / 0.7]),
        ("half", [-1.0] * 3, [1.0] * 3),
        ("none", [0.0] * 3, [1.0] * 3),
    ],
)
def test_black_and_white_become_what_each_normalisation_says(normalisation, low, high):
    black_and_white = image_set(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 12, 12))
    for setting, size in ((0, 12), (8, 8)):
        views = ViewsConfig(normalisation=normalisation, image_size=setting)
        preprocessing = preprocessing_for(views, black_and_white)
        found = preprocessing(black_and_white.images)
        assert found.shape == (2, 3, size, size)
        assert found[:, :, 0, 0].tolist() == [pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6)]
        assert preprocessing.pixel_range.low == pytest.approx(low)
        assert preprocessing.pixel_range.high == pytest.approx(high)


@pytest.mark.parametrize("std", [(0.5, 0.0, 0.7), (0.5,)])
def test_images_of_which_a_channel_never_changes_are_not_divided_by_its_spread(std):
    data = replace(image_set(torch.zeros(2, 3, 4, 4, dtype=torch.uint8)), std=std)
    with pytest.raises(DataError, match=r"views\.normalisation: cannot divide by the spread of toy, got std "):
        preprocessing_for(ViewsConfig(normalisation="dataset"), data)
    assert preprocessing_for(ViewsConfig(normalisation="half"), data).std == (0.5, 0.5, 0.5)
