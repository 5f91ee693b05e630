import dataclasses

import pytest

from ebclab.config import VIEW_RECIPES, compose, parse_experiment, to_mapping
from ebclab.config.sections import USUAL_VIEWS, ViewsConfig, fitting_views
from ebclab.errors import ConfigError

PUBLISHED = {
    # crop, flip, jitter rate and strengths, grayscale, blur rate and kernel, noise, normalisation
    "ebclr-mnist": ((0.08, 1.0), 0.0, (0.0, 0.0, 0.0, 0.0, 0.0), 0.0, (0.0, 3), 0.03, "half"),
    "ebclr-cifar": ((0.08, 1.0), 0.5, (0.8, 0.8, 0.8, 0.8, 0.2), 0.2, (1.0, 3), 0.03, "half"),
    "flatclr-cifar": ((0.08, 1.0), 0.5, (0.8, 0.4, 0.4, 0.4, 0.1), 0.2, (0.0, 3), 0.0, "dataset"),
    "moco-cifar": ((0.08, 1.0), 0.5, (0.8, 0.4, 0.4, 0.4, 0.1), 0.2, (0.0, 3), 0.0, "dataset"),
    "byol-imagenet": ((0.08, 1.0), 0.5, (0.8, 0.4, 0.4, 0.2, 0.1), 0.2, (1.0, 23), 0.0, "dataset"),
    "byol-cifar": ((0.08, 1.0), 0.5, (0.8, 0.4, 0.4, 0.2, 0.1), 0.2, (1.0, 3), 0.0, "dataset"),
    "simclr-imagenet": ((0.08, 1.0), 0.5, (0.8, 0.8, 0.8, 0.8, 0.2), 0.2, (0.5, 23), 0.0, "dataset"),
    "moco-imagenet": ((0.2, 1.0), 0.5, (0.8, 0.4, 0.4, 0.4, 0.1), 0.2, (0.5, 23), 0.0, "dataset"),
}


def views_of(methods, **given) -> ViewsConfig:
    return parse_experiment({"method": {"name": "plain"}, "views": given}, methods).views


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_recipes_have_the_papers_numbers(methods, name):
    views = views_of(methods, recipe=name)
    jitter = (views.jitter_rate, views.brightness, views.contrast, views.saturation, views.hue)
    assert PUBLISHED[name] == (
        (views.crop_scale_min, views.crop_scale_max),
        views.flip_rate,
        jitter,
        views.grayscale_rate,
        (views.blur_rate, views.blur_kernel_size),
        views.noise_std,
        views.normalisation,
    )
    assert (views.crop_ratio_min, views.crop_ratio_max) == (3 / 4, 4 / 3)
    assert (views.blur_sigma_min, views.blur_sigma_max) == (0.1, 2.0)
    assert views.image_size == (224 if name.endswith("imagenet") else 0)
    asymmetric = name.startswith("byol")
    assert views.blur_rates == (views.blur_rate, 0.1 if asymmetric else views.blur_rate)
    assert views.solarise_rates == (0.0, 0.2 if asymmetric else 0.0)


@pytest.mark.parametrize("name", VIEW_RECIPES)
def test_every_view_recipe_fixes_every_setting_but_the_size(name):
    names = {field.name for field in dataclasses.fields(ViewsConfig)}
    assert names - {"recipe", "image_size"} <= VIEW_RECIPES[name].settings.keys() <= names - {"recipe"}


def test_the_recipe_none_leaves_the_image_as_it_is(methods):
    assert views_of(methods, recipe="none") == ViewsConfig(recipe="none")


@pytest.mark.parametrize("dataset", USUAL_VIEWS)
def test_without_a_recipe_each_dataset_has_its_usual_views(methods, dataset):
    given = {"method": {"name": "plain"}, "data": {"name": dataset}}
    views = parse_experiment(given, methods).views
    assert views == views_of(methods, recipe=USUAL_VIEWS[dataset])
    assert (views.crop_scale_min, views.recipe) != (1.0, "auto")


def test_usual_views_of_an_unknown_dataset_are_refused_with_the_nearest_name(methods):
    with pytest.raises(ConfigError) as caught:
        parse_experiment({"method": {"name": "plain"}, "data": {"name": "fashon-mnist"}}, methods)
    assert caught.value.problems == ["data.name: no such dataset, got 'fashon-mnist'; did you mean fashion-mnist?"]


def test_a_folder_without_its_kind_is_told_how_it_is_named(methods, tmp_path):
    given = {"method": {"name": "plain"}, "data": {"name": str(tmp_path)}}
    with pytest.raises(ConfigError) as caught:
        parse_experiment(given, methods)
    assert caught.value.problems == [
        f"data.name: no such dataset, got '{tmp_path}'; it is a folder: write folder:{tmp_path} for image files in it, "
        f"or parquet:{tmp_path} for what `ebclab data prepare` wrote"
    ]


def test_settings_beside_the_recipe_override_it(methods):
    views = views_of(methods, recipe="moco-cifar", flip_rate=0.0)
    assert views == dataclasses.replace(views_of(methods, recipe="moco-cifar"), flip_rate=0.0)


def test_digits_are_never_mirrored(methods):
    assert views_of(methods, recipe="digits").flip_rate == views_of(methods, recipe="ebclr-mnist").flip_rate == 0.0


def test_a_recipe_named_later_replaces_the_resolved_views_of_a_file(methods):
    resolved = to_mapping(compose("plain", overrides=["views.recipe=ebclr-cifar"], methods=methods))
    config = compose("plain", config=resolved, overrides=["views.recipe=moco-cifar"], methods=methods)
    assert config.views == views_of(methods, recipe="moco-cifar")


def test_images_named_by_their_place_are_told_which_views_suit_them() -> None:
    with pytest.raises(ConfigError) as refusal:
        compose("simclr", overrides=["data.name=folder:photos"])
    advice = {
        "flatclr-cifar suits colour images below 96 pixels": fitting_views(3, 95, 95),
        "fashion-mnist grey ones": fitting_views(1, 95, 95),
        "simclr-imagenet larger ones": fitting_views(3, 640, 480),
    }
    for said, (recipe, *_) in advice.items():
        assert said in str(refusal.value)
        assert recipe == f"views.recipe={said.partition(' ')[0]}"
