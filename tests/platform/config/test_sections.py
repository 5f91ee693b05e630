import dataclasses
from typing import get_type_hints

import pytest

from ebclab.config.check import value_problem
from ebclab.config.experiment import SECTIONS
from energy_contrast.catalog import METHODS

CONFIG_TYPES = {**SECTIONS, **{f"method {name}": method.Config for name, method in METHODS.items()}}
FIELDS = [
    pytest.param(config_type, field, id=f"{section}.{field.name}")
    for section, config_type in CONFIG_TYPES.items()
    for field in dataclasses.fields(config_type)
]


@pytest.mark.parametrize(("config_type", "field"), FIELDS)
def test_every_setting_says_what_it_means(config_type, field):
    assert field.metadata["doc"].rstrip().endswith((".", "}", ")"))


@pytest.mark.parametrize(("config_type", "field"), FIELDS)
def test_every_default_is_valid(config_type, field):
    assert value_problem(field.default, field, get_type_hints(config_type)[field.name]) is None


@pytest.mark.parametrize("config_type", CONFIG_TYPES.values(), ids=CONFIG_TYPES)
def test_every_section_is_frozen_and_documented_and_consistent(config_type):
    config = config_type()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(config)[0].name, None)
    assert config_type.__doc__.endswith(".")
    assert not hasattr(config, "problems") or config.problems() == []


@pytest.mark.parametrize("config_type", CONFIG_TYPES.values(), ids=CONFIG_TYPES)
def test_no_setting_of_a_method_is_called_name(config_type):
    assert config_type in SECTIONS.values() or "name" not in {field.name for field in dataclasses.fields(config_type)}
