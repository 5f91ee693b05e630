import pytest

from ebclab.config import compose, list_recipes, load_recipe, parse_experiment, parse_yaml, to_mapping, to_yaml
from ebclab.config.yaml_text import from_yaml
from energy_contrast.catalog import METHODS

RUNS = [(method, recipe) for method in METHODS for recipe in (None, *list_recipes())]


@pytest.mark.parametrize(("method", "recipe"), RUNS)
def test_every_recipe_serves_every_method_and_its_settings_survive_the_round_trip(method, recipe):
    config = compose(method, recipe, overrides=["views.flip_rate=0.25", "optimizer.weight_decay=1e-7", "seed=3"])
    assert config.method_name == method
    assert recipe is None or config.data.name == load_recipe(recipe)["data"]["name"]
    assert parse_experiment(to_mapping(config)) == config
    if recipe is None or method == "simclr":  # a line of YAML depends on its own setting alone
        assert parse_yaml(to_yaml(config), "run.yaml") == config
    if recipe is None:  # comments depend on the method alone
        assert parse_yaml(to_yaml(config, explain=True), "run.yaml") == config


def test_text_that_looks_like_a_number_survives_the_round_trip(methods):
    overrides = ["data.name='1e4'", "views.recipe=none", "evaluation.linear_protocol='07'"]
    config = compose("plain", overrides=overrides, methods=methods)
    assert (config.data.name, config.evaluation.linear_protocol) == ("1e4", "07")
    assert parse_yaml(to_yaml(config), "run.yaml", methods) == config


def test_a_tuple_is_a_list_in_yaml(methods):
    config = compose("plain", overrides=["method.bounds=[0.1, 0.2]"], methods=methods)
    assert config.method.bounds == (0.1, 0.2)
    assert to_mapping(config)["method"]["bounds"] == [0.1, 0.2]
    assert "  bounds: [0.1, 0.2]\n" in to_yaml(config)


def test_the_mapping_holds_every_setting_in_the_order_of_the_file(methods):
    mapping = to_mapping(compose("plain", methods=methods))
    assert list(mapping) == [
        "method", "data", "views", "encoder", "init", "optimizer", "training", "evaluation", "resources", "seed",
    ]  # fmt: skip
    assert list(mapping["method"]) == ["name", "temperature", "head", "bounds", "target", "end", "gain"]
    assert from_yaml(to_yaml(compose("plain", methods=methods)), "run.yaml") == mapping


def test_comments_tell_meaning_choices_range_unit_and_symbol(methods):
    lines = [" ".join(line.split()) for line in to_yaml(compose("plain", methods=methods), explain=True).splitlines()]
    assert "method: # Settings of the plain method." in lines
    assert "name: plain # Which method." in lines
    assert "temperature: 0.5 # Divides similarities. Above 0. In the paper: tau." in lines
    assert "head: mlp # Shape of the head. One of linear, mlp." in lines
    assert "epochs: 10 # Passes over the training images. At least 1. Unit: epochs." in lines
    assert "seed: 0 # Seed of weights, views, order of images and draws. At least 0, at most 4294967295." in lines
