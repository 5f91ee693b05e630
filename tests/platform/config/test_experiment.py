import dataclasses
from typing import get_type_hints

import pytest

from ebclab.config import compose, list_recipes, load_recipe, parse_experiment, parse_yaml, to_mapping, to_yaml
from ebclab.config.check import value_problem
from ebclab.config.experiment import SECTIONS
from ebclab.config.yaml_text import from_yaml
from ebclab.errors import ConfigError
from energy_contrast.catalog import METHODS


@pytest.mark.parametrize("method", METHODS)
def test_every_recipe_serves_every_method_and_its_settings_survive_the_round_trip(method):
    for recipe in (None, *list_recipes()):
        config = compose(method, recipe, overrides=["views.flip_rate=0.25", "optimizer.weight_decay=1e-7", "seed=3"])
        assert config.method_name == method
        assert recipe is None or config.data.name == load_recipe(recipe)["data"]["name"]
        assert parse_experiment(to_mapping(config)) == config, recipe
        if recipe is None or method == "simclr":  # a line of YAML depends on its own setting alone
            assert parse_yaml(to_yaml(config), "run.yaml") == config, recipe
        if recipe is None:  # comments depend on the method alone
            assert parse_yaml(to_yaml(config, explain=True), "run.yaml") == config


def test_text_that_looks_like_a_number_survives_the_round_trip(methods):
    overrides = ["data.name='1e4'", "views.recipe=none", "evaluation.linear_protocol='07'"]
    config = compose("plain", overrides=overrides, methods=methods)
    assert (config.data.name, config.evaluation.linear_protocol) == ("1e4", "07")
    assert parse_yaml(to_yaml(config), "run.yaml", methods) == config


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


CONFIG_TYPES = {**SECTIONS, **{f"method {name}": method.Config for name, method in METHODS.items()}}


@pytest.mark.parametrize("config_type", CONFIG_TYPES.values(), ids=CONFIG_TYPES)
def test_every_setting_says_what_it_means_and_has_a_valid_default(config_type):
    hints, fields = get_type_hints(config_type), dataclasses.fields(config_type)
    assert [field.name for field in fields if not field.metadata["doc"].rstrip().endswith((".", "}", ")"))] == []
    problems = {field.name: value_problem(field.default, field, hints[field.name]) for field in fields}
    assert {name: problem for name, problem in problems.items() if problem is not None} == {}


@pytest.mark.parametrize("config_type", CONFIG_TYPES.values(), ids=CONFIG_TYPES)
def test_every_section_is_frozen_and_documented_and_consistent(config_type):
    config, names = config_type(), [field.name for field in dataclasses.fields(config_type)]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, names[0], None)
    assert config_type.__doc__.endswith(".")
    assert not hasattr(config, "problems") or config.problems() == []
    assert config_type in SECTIONS.values() or "name" not in names  # which is that of the method


@pytest.mark.parametrize(
    ("name", "value", "range_"),
    [
        ("temperature", "0", "a number, above 0"),
        ("generative_weight", "-1", "a number, at least 0"),
        ("reinit_rate", "1.2", "a number, at least 0, at most 1"),
        ("noise_decay_count", "0", "a whole number, at least 1"),
    ],
)
def test_a_methods_own_settings_are_held_to_their_ranges(name, value, range_):
    with pytest.raises(ConfigError) as caught:
        compose("ebclr", overrides=[f"method.{name}={value}"])
    (problem,) = caught.value.problems
    assert problem.startswith(f"method.{name}: out of range, got {value}; must be {range_}")
