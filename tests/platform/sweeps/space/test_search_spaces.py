"""The search spaces shipped with the package."""

from dataclasses import fields, replace
from importlib.resources import files
from itertools import product

import pytest

from ebclab.config import compose, list_recipes
from ebclab.methods_by_name import catalogue
from ebclab.optimization.schedules import peak_learning_rate
from ebclab.sweeps.space.check import apply_settings, space_problems
from ebclab.sweeps.space.space import list_spaces, load_space, own_settings

SPACES = [name for name in list_spaces() if "/" not in name]
SWEPT = list(catalogue())
EXAMPLES = [name for name in list_spaces() if "/" in name]


def test_there_is_a_space_for_every_method_and_for_no_other():
    assert set(SPACES) == set(SWEPT)


@pytest.mark.parametrize("name", SPACES)
def test_every_space_searches_learning_rate_batch_size_and_projection_size_and_temperature_where_there_are_some(name):
    settings = {field.name for field in fields(catalogue()[name].Config)}
    keys = {"optimizer.learning_rate", "training.batch_size"}
    keys |= {f"method.{name}" for name in ("projection_size", "temperature") if name in settings}
    assert keys <= load_space(None, name).by_name.keys()


@pytest.mark.parametrize(
    ("method", "path"),
    [(method, None) for method in ("simclr", "flatclr", "dcl", "moco")]
    + [(method, "examples/ess-target") for method in ("simclr", "flatclr", "dcl", "moco", "dhel", "supervised")],
)
def test_the_control_of_the_temperature_is_searched_off_and_on(method, path):
    space = load_space(path, method)
    target = space.by_name["method.ess_target"]
    assert target.ends == (0.0, 0.04, 0.9)
    config = compose(method, overrides=["method.objective=supcon"] if method == "supervised" else [])
    assert config.method.ess_target == 0
    assert space_problems(space, config, searched_live_only=False) == []
    small = replace(config.method, ess_target=target.low)
    catalogue()[method].requirements(small, 32 if method == "dhel" else 16)  # fewer negatives: those of its own view


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_fits_the_method_that_it_names(example):
    method = {"digits": "flatclr", "ess-target": "simclr", "ebclr-energies": "ebclr", "vem-bank": "vem-langevin"}
    method |= {"rate-and-temperature-adam": "ebclr", "cifar10-small-byol": "byol", "spread": "dhel"}
    name = method.get(example.removeprefix("examples/"), "flatclr" if "ess" in example else "vem-svgd")
    start = ["method.ess_target=0.4"] if "schedule" in example or "small-ess" in example else []
    recipes = {"rate-and-temperature": "cifar10-resnet18", "cifar10-small": "cifar10-small"}
    recipe = next((recipe for part, recipe in recipes.items() if part in example), "fashion-mnist-small")
    config = compose(name, recipe, overrides=start)
    assert space_problems(load_space(example, name), config, searched_live_only=False) == []


SEARCHED_IN = {
    "ess_target_end": ("flatclr", "examples/ess-schedule", (0.0, 0.9)),
    "gradient_clamp": ("ebclr", "ebclr", (0.1, 10.0)),
    "gradient_clamp of VEM": ("vem-image", "vem-image", (0.1, 10.0)),
}


@pytest.mark.parametrize("setting", SEARCHED_IN)
def test_settings_of_the_papers_are_searched_between_what_their_methods_accept(setting):
    method, name, expected = SEARCHED_IN[setting]
    space = load_space(name, method)
    values = [space.settings(point)[f"method.{setting.partition(' ')[0]}"] for point in space.corners()]
    assert (min(values), max(values)) == expected


@pytest.mark.parametrize("method", ["simclr", "flatclr", "dcl", "ebclr"])
def test_the_small_batches_that_flatnce_and_ebclr_are_about_can_be_searched(method):
    space = load_space(None, method)
    for recipe, batch_size in product(list_recipes(), (16, 32)):
        config = compose(method, recipe)
        start = space.point_of(own_settings(space, config))
        point = start | {"training.batch_size": batch_size}
        assert space.point_of(space.settings(point)) == point
        small = apply_settings(config, space.settings(point))
        assert small.training.batch_size == batch_size
        assert catalogue()[method].requirements(small.method, batch_size).num_views == 2
        scaled = small.optimizer.scaling == "linear"
        expected = config.optimizer.learning_rate * (batch_size / 256 if scaled else 1)
        assert peak_learning_rate(small.optimizer, batch_size) == pytest.approx(expected)


@pytest.mark.parametrize("name", SPACES)
def test_every_range_says_above_it_where_it_comes_from(name):
    lines = files("ebclab").joinpath("search_spaces", f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# What a sweep of ")
    for line, above in zip(lines[2:], lines[1:], strict=False):
        is_range = line.startswith("  ") and not line.strip().startswith("#")
        assert not is_range or above.strip().startswith("#") or line.startswith("  method.sigma_min"), line


@pytest.mark.parametrize("method", SWEPT)
def test_every_space_fits_every_recipe_which_is_its_default_point(method):
    space = load_space(None, method)
    for recipe in list_recipes():
        config = compose(method, recipe)
        assert space_problems(space, config, searched_live_only=False) == []
        point = space.point_of(own_settings(space, config))
        assert apply_settings(config, space.settings(point)) == config, recipe


@pytest.mark.parametrize("method", SWEPT)
def test_what_passes_the_check_at_corners_also_passes_as_a_whole_run(method):
    space, config = load_space(None, method), compose(method, "digits-demo")
    corners = list(space.corners())
    for corner in corners[:: max(1, len(corners) // 25)]:
        apply_settings(config, space.settings(corner))
