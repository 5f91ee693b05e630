"""Drawn parameters against torchvision's own draws, closed-form moments and binomial bounds."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torchvision.transforms import RandomResizedCrop

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words, unit_interval
from ebclab.data.views.parameters import BRIGHTNESS, CONTRAST, HUE, SATURATION, ViewParameters, draw_parameters

MANY = 24_000
SIGMAS = 5  # bounds are this many standard deviations of the statistic
JITTER = ViewsConfig(jitter_rate=0.8, brightness=0.4, contrast=0.3, saturation=1.5, hue=0.1)


def draw(config: ViewsConfig, height: int = 32, width: int = 32, **changes) -> ViewParameters:
    """One view of MANY images, fields (MANY, ...)."""
    words = {"seed": 1, "epoch": 0, "views": range(1)} | changes
    parameters = draw_parameters(torch.arange(MANY), config, height, width, **words)
    return ViewParameters._make(field[0] for field in parameters)


def assert_rate(flags: torch.Tensor, rate: float) -> None:
    bound = SIGMAS * (rate * (1 - rate) / flags.numel()) ** 0.5
    assert abs(flags.double().mean() - rate) <= bound


def assert_uniform(values: torch.Tensor, low: float, high: float) -> None:
    """First, second and fourth moment, and the range."""
    unit = (values.double() - low) / (high - low)
    assert unit.min() >= -1e-6
    assert unit.max() <= 1 + 1e-6
    for power in (1, 2, 4):
        expected = 1 / (power + 1)
        spread = (1 / (2 * power + 1) - expected**2) ** 0.5
        assert abs(unit.pow(power).mean() - expected) < SIGMAS * spread / unit.numel() ** 0.5


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


def test_crop_boxes_lie_inside_the_image_and_touch_its_borders():
    box = draw(ViewsConfig(crop_scale_min=0.08), 20, 30)
    assert (box.top.min(), box.left.min()) == (0, 0)
    assert (box.top + box.height).max() == 20
    assert (box.left + box.width).max() == 30
    assert min(box.height.min(), box.width.min()) >= 1


def test_a_crop_scale_of_one_takes_the_whole_image_whatever_its_shape():
    box = draw(ViewsConfig(), 20, 60)
    assert [field.unique().tolist() for field in box[:4]] == [[0], [0], [20], [60]]


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 1.0])
def test_rates_are_met(rate):
    config = ViewsConfig(flip_rate=rate, grayscale_rate=rate, blur_rate=rate, jitter_rate=rate, brightness=0.4, hue=0.1)
    parameters = draw(replace(config, solarise_rate=rate))
    assert_rate(parameters.solarise, rate)
    assert_rate(parameters.flip, rate)
    assert_rate(parameters.grayscale, rate)
    assert_rate(parameters.blur_sigma > 0, rate)
    assert_rate(parameters.brightness != 1, rate)
    assert torch.equal(parameters.brightness != 1, parameters.hue != 0)  # jitter is drawn once for all four


def test_second_views_have_rates_of_their_own():
    """BYOL's table: blur 1.0 and 0.1, solarise 0.0 and 0.2."""
    config = ViewsConfig(blur_rate=1.0, second_blur_rate=0.1, solarise_rate=0.0, second_solarise_rate=0.2)
    for view, (blur, solarise) in enumerate([(1.0, 0.0), (0.1, 0.2)] * 2):
        parameters = draw(config, views=range(view, view + 1))
        assert_rate(parameters.blur_sigma > 0, blur)
        assert_rate(parameters.solarise, solarise)
    together = draw_parameters(torch.arange(9), config, 8, 8, seed=1, epoch=0, views=range(4))
    for view in range(4):
        alone = draw_parameters(torch.arange(9), config, 8, 8, seed=1, epoch=0, views=range(view, view + 1))
        assert all(torch.equal(field[0], other[view]) for field, other in zip(alone, together, strict=True))


def test_a_rate_of_0_for_second_views_is_not_no_rate():
    config = ViewsConfig(blur_rate=1.0, second_blur_rate=0.0, solarise_rate=1.0, second_solarise_rate=0.0)
    assert config.blur_rates == config.solarise_rates == (1.0, 0.0)
    assert replace(config, second_blur_rate=None, second_solarise_rate=None).blur_rates == (1.0, 1.0)


def test_every_random_number_has_the_place_that_it_always_had():
    """Places are hashed: were one to move, runs that exist would get other views when they go on."""
    keys, config = torch.arange(50), ViewsConfig(crop_scale_min=0.5, flip_rate=0.5, solarise_rate=0.5)
    parameters = draw_parameters(keys, config, 100, 100, seed=7, epoch=2, views=range(1))

    def number(place: int) -> torch.Tensor:
        return unit_interval(hash_words(0x7669657773, 7, 2, keys, 0, place))

    assert torch.equal(parameters.flip[0], number(0) < 0.5)
    assert torch.equal(parameters.solarise[0], number(32) < 0.5)
    area, ratio = (number(12) * 0.5 + 0.5) * 100**2, (number(22) * 2 * math.log(4 / 3) - math.log(4 / 3)).exp()
    width, height = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (width <= 100) & (height <= 100)  # at the first try
    assert fits.sum() > 20
    assert torch.equal(parameters.width[0][fits], width[fits].long())
    assert torch.equal(parameters.height[0][fits], height[fits].long())
    assert torch.equal(parameters.noise_word[0], hash_words(0x7669657773, 7, 2, keys, 0, -1))


def test_choices_are_independent_of_each_other():
    config = ViewsConfig(
        flip_rate=0.5, grayscale_rate=0.5, blur_rate=0.5, jitter_rate=0.5, brightness=0.4, solarise_rate=0.5
    )
    p = draw(config)
    flags = torch.stack([p.flip, p.grayscale, p.blur_sigma > 0, p.brightness != 1, p.solarise]).double() * 2 - 1
    correlation = flags @ flags.T / MANY - torch.eye(5)
    assert correlation.abs().max() < SIGMAS / MANY**0.5


def test_jitter_factors_are_uniform_and_never_negative():
    parameters = draw(JITTER)
    jittered = parameters.hue != 0
    assert_rate(jittered, 0.8)
    assert_uniform(parameters.brightness[jittered], 0.6, 1.4)
    assert_uniform(parameters.contrast[jittered], 0.7, 1.3)
    assert_uniform(parameters.saturation[jittered], 0.0, 2.5)  # 1 - 1.5 is cut at 0, as in torchvision
    assert_uniform(parameters.hue[jittered], -0.1, 0.1)


def test_images_without_jitter_get_neutral_factors():
    parameters = draw(JITTER)
    alone = parameters.hue == 0
    for factor in (parameters.brightness, parameters.contrast, parameters.saturation):
        assert (factor[alone] == 1).all()


def test_blur_sigma_is_uniform():
    parameters = draw(ViewsConfig(blur_rate=1.0, blur_sigma_min=0.1, blur_sigma_max=2.0))
    assert_uniform(parameters.blur_sigma, 0.1, 2.0)


def test_all_24_orders_of_the_colour_operations_are_equally_likely():
    order = draw(JITTER).order
    assert (order.sort(1).values == torch.tensor([BRIGHTNESS, CONTRAST, SATURATION, HUE])).all()
    _, counts = order.unique(dim=0, return_counts=True)
    assert len(counts) == math.factorial(4)
    expected = MANY / 24
    chi_square = ((counts - expected).square() / expected).sum()
    assert chi_square < 23 + SIGMAS * (2 * 23) ** 0.5  # 23 degrees of freedom


def test_images_of_one_batch_get_different_parameters():
    config = ViewsConfig(crop_scale_min=0.08, jitter_rate=1.0, brightness=0.4, hue=0.1, blur_rate=1.0)
    parameters = draw(config)
    for field in (parameters.brightness, parameters.hue, parameters.blur_sigma):
        assert len(field.unique()) > 0.98 * MANY  # float32 may collide
    assert len(parameters.noise_word.unique()) == MANY
    assert len(torch.stack(parameters[:4], 1).unique(dim=0)) > 1000


def test_seed_epoch_view_and_key_each_change_the_draws():
    config = ViewsConfig(jitter_rate=1.0, brightness=0.4)
    base = draw(config)
    changed = [draw(config, seed=2), draw(config, epoch=1), draw(config, views=range(1, 2))]
    shifted = base.brightness.roll(1)
    for other in [parameters.brightness for parameters in changed] + [shifted]:
        correlation = torch.corrcoef(torch.stack([base.brightness, other]))[0, 1]
        assert abs(correlation) < SIGMAS / MANY**0.5
    for parameters in changed:
        assert not (parameters.noise_word == base.noise_word).any()


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    draw(JITTER)
    assert torch.equal(torch.get_rng_state(), before)


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
