"""Lists of the names that a command line accepts, with a line about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from inspect import getdoc, getmodule
from typing import Literal

from ebclab.config.parse import Methods, catalogue
from ebclab.config.recipes import list_recipes, recipe_text
from ebclab.config.view_recipes import VIEW_RECIPES


def listing(kind: Literal["methods", "recipes", "views"], methods: Methods | None = None) -> dict[str, str]:
    """Return name and one line about each method, recipe or view recipe.

    Args:
        kind: What to list.
        methods: The catalogue; that of energy_contrast when None.
    """
    match kind:
        case "methods":
            return _about_methods(catalogue() if methods is None else methods)
        case "recipes":
            return {name: _headline(recipe_text(name), name) for name in list_recipes()}
        case "views":
            return {name: recipe.doc for name, recipe in VIEW_RECIPES.items()}


def _about_methods(methods: Mapping[str, type]) -> dict[str, str]:
    """Return the first line of each method's file, or of its class where a file holds several."""
    in_file = Counter(map(getmodule, methods.values()))
    described = {
        name: method if in_file[file := getmodule(method)] > 1 else file or method for name, method in methods.items()
    }
    return {name: (getdoc(what) or "").partition("\n")[0] for name, what in described.items()}


def _headline(text: str, name: str) -> str:
    """Return the first line of a recipe without ``# name: ``."""
    return text.partition("\n")[0].removeprefix(f"# {name}: ")
