import dataclasses
from typing import get_type_hints

import pytest

from ebclab.config import compose
from ebclab.config.check import value_problem
from ebclab.config.experiment import SECTIONS
from ebclab.errors import ConfigError
from energy_contrast.catalog import METHODS

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
