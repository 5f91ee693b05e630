"""Drawn parameters against the hash in integers of Python, and crop boxes against torchvision's own draws."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torchvision.transforms import RandomResizedCrop

from ebclab.config.sections import ViewsConfig
from ebclab.data.views.parameters import BRIGHTNESS, CONTRAST, HUE, SATURATION, ViewParameters, draw_parameters

MANY = 24_000
SIGMAS = 5  # bounds are this many standard deviations of the statistic


def draw(config: ViewsConfig, height: int = 32, width: int = 32, **changes) -> ViewParameters:
    """One view of MANY images, fields (MANY, ...)."""
    words = {"seed": 1, "epoch": 0, "views": range(1)} | changes
    parameters = draw_parameters(torch.arange(MANY), config, height, width, **words)
    return ViewParameters._make(field[0] for field in parameters)


def box_statistics(top, left, height, width) -> torch.Tensor:
    """(n, 10): first moments, second moments and products of box numbers."""
    box = torch.stack([torch.as_tensor(field).double() for field in (top, left, height, width)], 1)
    return torch.cat([box, box.square(), box[:, 2:3] * box[:, 3:4], box[:, 0:1] * box[:, 2:3]], 1)


CROPS = [
    (32, 32, 0.08, 1.0, 3 / 4, 4 / 3),
    (32, 32, 0.2, 1.0, 3 / 4, 4 / 3),
    (32, 32, 0.9, 1.0, 3 / 4, 4 / 3),  # most tries do not fit
    (20, 60, 0.5, 1.0, 3 / 4, 4 / 3),  # no try fits: central crop, limited by the largest ratio
    (60, 20, 0.4, 0.7, 3 / 4, 4 / 3),  # some images fall back, limited by the smallest ratio
    (24, 36, 0.9, 1.0, 0.5, 2.0),  # falls back to the whole image
]


@pytest.mark.parametrize(("height", "width", "scale_min", "scale_max", "ratio_min", "ratio_max"), CROPS)
def test_crop_boxes_have_the_moments_of_torchvisions(height, width, scale_min, scale_max, ratio_min, ratio_max):
    config = ViewsConfig(
        crop_scale_min=scale_min, crop_scale_max=scale_max, crop_ratio_min=ratio_min, crop_ratio_max=ratio_max
    )
    parameters = draw(config, height, width)
    ours = box_statistics(parameters.top, parameters.left, parameters.height, parameters.width)
    torch.manual_seed(0)
    image = torch.empty(1, height, width)
    draws = [
        RandomResizedCrop.get_params(image, [scale_min, scale_max], [ratio_min, ratio_max]) for _ in range(MANY // 8)
    ]
    theirs = box_statistics(*zip(*draws, strict=True))
    spread = (ours.var(0) / len(ours) + theirs.var(0) / len(theirs)).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)).abs() <= SIGMAS * spread + 1e-9).all()


def test_a_crop_scale_of_one_takes_the_whole_image_whatever_its_shape():
    box = draw(ViewsConfig(), 20, 60)
    assert [field.unique().tolist() for field in box[:4]] == [[0], [0], [20], [60]]


def test_a_rate_of_0_for_second_views_is_not_no_rate():
    config = ViewsConfig(blur_rate=1.0, second_blur_rate=0.0, solarise_rate=1.0, second_solarise_rate=0.0)
    assert config.blur_rates == config.solarise_rates == (1.0, 0.0)
    assert replace(config, second_blur_rate=None, second_solarise_rate=None).blur_rates == (1.0, 1.0)


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    draw(ViewsConfig(jitter_rate=0.8, brightness=0.4))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shared", [False, True])
def test_a_parameter_is_what_the_hash_of_seed_epoch_key_view_and_its_place_names(shared, splitmix64_words):
    """Were a place to move, runs that exist would get other views when they resume. Images of one word share a draw."""
    config = ViewsConfig(
        flip_rate=0.5, jitter_rate=0.8, brightness=0.4, contrast=0.3, saturation=1.5, hue=0.1, grayscale_rate=0.2,
        blur_rate=0.5, second_blur_rate=0.1, blur_sigma_min=0.1, blur_sigma_max=2.0,
        solarise_rate=0.2, second_solarise_rate=0.6,
    )  # fmt: skip
    keys = torch.arange(50)
    words = keys // 2 if shared else None
    drawn = draw_parameters(keys, config, 8, 8, seed=7, epoch=2, views=range(1, 3), shared=words)
    stream, own = (int.from_bytes(each) for each in (b"shared" if shared else b"views", b"views"))
    orders = list(itertools.permutations((BRIGHTNESS, CONTRAST, SATURATION, HUE)))
    for view, key in itertools.product((1, 2), range(50)):
        word = key // 2 if shared else key
        blur_rate, solarise_rate = (0.1, 0.6) if view == 1 else (0.5, 0.2)
        number = [(splitmix64_words(stream, 7, 2, word, view, place) % 2**64 >> 11) / 2**53 for place in range(33)]
        jitter, blur = number[1] < 0.8, number[8] < blur_rate
        expected = {
            "flip": number[0] < 0.5,
            "brightness": 0.6 + 0.8 * number[3] if jitter else 1.0,
            "contrast": 0.7 + 0.6 * number[4] if jitter else 1.0,
            "saturation": 2.5 * number[5] if jitter else 1.0,  # 1 - 1.5 is cut at 0, as in torchvision
            "hue": 0.2 * number[6] - 0.1 if jitter else 0.0,
            "grayscale": number[7] < 0.2,
            "blur_sigma": 0.1 + 1.9 * number[9] if blur else 0.0,
            "solarise": number[32] < solarise_rate,
        }
        untold = {*ViewParameters._fields} - {*expected, "order", "noise_word", *("top", "left", "height", "width")}
        assert not untold, f"expected, above, lacks {untold}"
        found = ViewParameters._make(field[view - 1, key] for field in drawn)
        assert {name: getattr(found, name).item() for name in expected} == pytest.approx(expected, rel=1e-6, abs=1e-7)
        assert tuple(found.order.tolist()) == orders[int(24 * number[2])]
        assert found.noise_word == splitmix64_words(own, 7, 2, key, view, -1)


@pytest.mark.parametrize("key", range(12))
def test_a_box_is_the_one_that_the_hash_of_its_key_names(key: int, splitmix64_words: Callable[..., int]) -> None:
    """A statistic cannot tell a ratio from its inverse, since their laws are the same; one image can."""
    height, width = 40, 60
    config = ViewsConfig(crop_scale_min=0.1, crop_scale_max=0.4, crop_ratio_min=0.5, crop_ratio_max=2.0)
    top, left, areas, ratios = 10, 11, 12, 22  # slots; there are ten tries

    def uniform(slot: int) -> float:
        return (splitmix64_words(int.from_bytes(b"views"), 1, 0, key, 0, slot) % 2**64 >> 11) / 2**53

    for attempt in range(10):  # as in torchvision
        area = height * width * (0.1 + 0.3 * uniform(areas + attempt))
        ratio = 0.5 * 4.0 ** uniform(ratios + attempt)  # width / height, uniform in its logarithm
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if rows <= height and columns <= width:
            break
    expected = (int(uniform(top) * (height - rows + 1)), int(uniform(left) * (width - columns + 1)), rows, columns)
    assert tuple(int(field[key]) for field in draw(config, height, width)[:4]) == expected
