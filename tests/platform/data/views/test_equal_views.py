"""Which settings make all views of an image the same, compared with the views themselves."""

import itertools
from dataclasses import fields, replace

import pytest
import torch

from ebclab.config.sections import VIEW_RECIPES, ViewsConfig, fitting_views
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import pipeline
from ebclab.data.views.pipeline import make_views

CHANGES = {
    "crop_scale_min": 0.5,
    "flip_rate": 0.5,
    "jitter_rate": 0.8,
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "hue": 0.1,
    "grayscale_rate": 0.2,
    "blur_rate": 0.5,
    "second_blur_rate": 0.3,
    "blur_sigma_min": 2.0,
    "solarise_rate": 0.4,
    "second_solarise_rate": 0.3,
    "second_plain": True,
    "noise_std": 0.1,
}
ONLY_WITH_OTHERS = {"crop_scale_max", "crop_ratio_min", "crop_ratio_max", "blur_kernel_size", "blur_sigma_max"}
OF_NO_OPERATION = {"recipe", "image_size", "normalisation", "shared_by"}
DRAWN = {"jitter_rate": 0.8, "blur_rate": 0.5}  # without them some changes show nowhere
SIDES = [8, 96]  # views made in batches, and one by one on a CPU


def views_of(side: int, **settings: object) -> torch.Tensor:
    images = torch.randint(256, (12, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    config, preprocessing = ViewsConfig(**settings), Preprocessing(side, (0.5,) * 3, (0.5,) * 3)  # type: ignore[arg-type]
    return make_views(images, torch.arange(12), config, preprocessing, seed=0, epoch=0)


@pytest.mark.parametrize("name", [field.name for field in fields(ViewsConfig)])
def test_each_setting_of_views_is_tried_below(name: str) -> None:
    known = {*CHANGES, *ONLY_WITH_OTHERS, *OF_NO_OPERATION}
    assert name in known, f"{name}: add it to CHANGES in this file, or to a list below it"


@pytest.mark.parametrize("name", CHANGES)
def test_views_of_large_images_are_made_by_the_same_operations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DRAWN | {name: CHANGES[name]}
    one_by_one = views_of(SIDES[1], **settings)
    monkeypatch.setattr(pipeline, "are_large", lambda *_: False)
    share = ((one_by_one - views_of(SIDES[1], **settings)).abs() > 1e-3).float().mean()
    assert share < 0.01, f"{name}: data/views/large.py does not do what data/views/pipeline.py does"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", sorted({*CHANGES} - {"noise_std", "second_plain"}))
def test_second_views_that_are_plain_take_part_in_no_operation(name: str, side: int) -> None:
    second = views_of(side, **DRAWN | {name: CHANGES[name], "second_plain": True})[1]
    told = f"{name}: _with_plain_second_views in data/views/parameters.py must leave it out"
    torch.testing.assert_close(second, views_of(side)[1], msg=told)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "certain", [(), ("flip_rate", "grayscale_rate", "blur_rate"), ("blur_rate", "second_blur_rate", "solarise_rate")]
)
def test_views_are_called_equal_exactly_when_two_of_them_are(channels: int, certain: tuple[str, ...]) -> None:
    images = torch.randint(256, (16, channels, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    preprocessing = Preprocessing(8, (0.5,) * channels, (0.5,) * channels)
    seen = set()
    for several in range(3):
        for names in itertools.combinations(CHANGES, several):
            config = ViewsConfig(**{name: 1.0 if name in certain else CHANGES[name] for name in names})  # type: ignore[arg-type]
            first, second = make_views(images, torch.arange(16), config, preprocessing, seed=0, epoch=0)
            are_equal = torch.equal(first, second)
            assert config.are_equal(channels) == are_equal, f"{names}: ViewsConfig.are_equal says otherwise"
            seen.add(are_equal)
    assert seen == {True, False}


@pytest.mark.parametrize("channels", [1, 3])
def test_no_recipe_but_none_has_equal_views(channels: int) -> None:
    equal = {name for name, recipe in VIEW_RECIPES.items() if ViewsConfig(**recipe.settings).are_equal(channels)}
    assert equal == {"none"}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 32, 32), ["views.recipe=flatclr-cifar"]),
        ((1, 28, 28), ["views.recipe=fashion-mnist"]),
        ((3, 120, 160), ["views.recipe=simclr-imagenet", "views.image_size=120"]),
        ((3, 480, 640), ["views.recipe=simclr-imagenet"]),
    ],
)
def test_views_are_suggested_by_the_shape_of_the_images(shape: tuple[int, int, int], expected: list[str]) -> None:
    assert fitting_views(*shape) == expected


@pytest.mark.parametrize("recipe", ["byol-cifar", "digits", "flatclr-cifar"])
def test_plain_second_views_are_the_images_and_leave_the_first_as_they_were(recipe: str) -> None:
    images = torch.randint(256, (12, 3, 8, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    preprocessing = Preprocessing(8, (0.5,) * 3, (0.5,) * 3)
    config = replace(ViewsConfig(**VIEW_RECIPES[recipe].settings), noise_std=0.0)

    def views(settings: ViewsConfig) -> torch.Tensor:
        return make_views(images, torch.arange(12), settings, preprocessing, seed=0, epoch=0, num_views=4)

    plain, image = views(replace(config, second_plain=True)), views(ViewsConfig())[0]
    assert torch.equal(plain[1::2], torch.stack([image, image]))
    assert torch.equal(plain[::2], views(config)[::2])
