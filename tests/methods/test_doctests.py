"""Every example in the science package's docstrings is true."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import energy_contrast
from energy_contrast import diagnostics, losses

MODULES = sorted(m.name for m in pkgutil.walk_packages(energy_contrast.__path__, "energy_contrast."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_show(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("module", [losses, diagnostics])
def test_every_public_function_shows_an_example_and_its_source(module: object) -> None:
    functions = [f for n, f in inspect.getmembers(module, inspect.isfunction) if not n.startswith("_")]
    own = [f for f in functions if f.__module__ == module.__name__]
    assert own
    for function in own:
        assert ">>>" in function.__doc__, function.__name__
        assert "Source:" in function.__doc__, function.__name__
