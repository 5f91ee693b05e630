import pytest

from ebclab.config import compose
from ebclab.config.overrides import apply_overrides, merge
from ebclab.errors import ConfigError


def test_an_override_sets_one_value_and_keeps_the_rest():
    mapping = {"method": {"name": "simclr", "temperature": 0.5}, "seed": 1}
    assert apply_overrides(mapping, ["method.temperature=0.2"]) == {
        "method": {"name": "simclr", "temperature": 0.2},
        "seed": 1,
    }
    assert mapping["method"]["temperature"] == 0.5


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("3", 3), ("true", True), ("null", None), ("", None), ("a=b", "a=b"), ("[1, 2]", [1, 2])],
)
def test_values_are_yaml_and_the_last_of_a_key_counts(text, value):
    assert apply_overrides({}, ["data.root=before", f"data.root={text}"]) == {"data": {"root": value}}


def test_all_unreadable_overrides_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        apply_overrides({}, ["training.epochs", "=3", "method..tau=1", "data.name=[", "seed=1"])
    assert caught.value.problems[:3] == [
        "--set: no = found, got 'training.epochs'; write training.epochs=VALUE",
        "--set: no key before =, got '=3'; write SECTION.NAME=VALUE, such as training.epochs=5",
        "--set: no key before =, got 'method..tau=1'; write SECTION.NAME=VALUE, such as training.epochs=5",
    ]
    assert caught.value.problems[3].startswith("--set data.name, line 1, column 2: not valid YAML, ")
    assert len(caught.value.problems) == 4


def test_an_empty_section_above_changes_nothing_below_and_null_replaces_a_value():
    assert merge({"training": {"epochs": 3}}, {"training": None}) == {"training": {"epochs": 3}}
    assert merge({"data": {"root": "/images"}}, {"data": {"root": None}}) == {"data": {"root": None}}


def test_naming_a_view_recipe_forgets_the_views_below():
    below = {"views": {"recipe": "digits", "noise_std": 0.5}, "seed": 1}
    named = {"recipe": "none", "flip_rate": 1.0}
    assert merge(below, {"views": named}) == {"views": named, "seed": 1}
    assert merge(below, {"views": {"flip_rate": 1.0}})["views"] == {**below["views"], "flip_rate": 1.0}


@pytest.mark.parametrize("order", [1, -1])
def test_overrides_of_views_do_not_depend_on_their_order(order):
    overrides = ["views.flip_rate=0.5", "views.recipe=none"][::order]
    assert apply_overrides({"views": {"hue": 0.1}}, overrides)["views"] == {"flip_rate": 0.5, "recipe": "none"}


def test_from_python_settings_may_be_values_by_key():
    given = {"training.epochs": 5, "views.recipe": "digits", "seed": 3}
    assert compose("simclr", overrides=given) == compose("simclr", overrides=[f"{k}={v}" for k, v in given.items()])
    with pytest.raises(ConfigError, match=r"training\.epoch: no such setting; did you mean training\.epochs"):
        compose("simclr", overrides={"training.epoch": 5})
