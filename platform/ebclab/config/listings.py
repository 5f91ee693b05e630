"""Lists of the names that a command line accepts, with a line about each."""

from __future__ import annotations

from collections import Counter
from inspect import getdoc, getmodule
from typing import TYPE_CHECKING, Literal

from ebclab.config.recipes import list_recipes, recipe_text
from ebclab.config.view_recipes import VIEW_RECIPES
from ebclab.formatting import size
from ebclab.methods_by_name import Methods, catalogue

if TYPE_CHECKING:
    from energy_contrast.method import Method


def listing(kind: Literal["methods", "recipes", "views"], methods: Methods | None = None) -> dict[str, str]:
    """Return name and one line about each method, recipe or view recipe.

    Args:
        methods: The catalogue; that of energy_contrast when None.
    """
    match kind:
        case "methods":
            return _about_methods(catalogue() if methods is None else methods)
        case "recipes":
            return {name: _headline(recipe_text(name), name) for name in list_recipes()}
        case "views":
            return {name: recipe.doc for name, recipe in VIEW_RECIPES.items()}


def cost_rows(methods: Methods | None = None) -> list[tuple[str, ...]]:
    """Return rows with the cost of a training step of each method at its default settings, the first row being titles.

    The columns: name; images passed through the encoder and its copies, for each image of the batch; those of them with
    a backward pass; slow copies of the encoder; bytes kept from step to step, networks not counted, for 50,000 training
    images of 3x32x32 pixels.

    Args:
        methods: The catalogue; that of energy_contrast when None.
    """
    from energy_contrast.costs import default_costs

    rows: list[tuple[str, ...]] = [("method", "forward", "backward", "encoder copies", "kept")]
    for name, method in (catalogue() if methods is None else methods).items():
        (forward, backward), num_copies, kept = default_costs(method, (3, 32, 32), 50_000)
        rows.append((name, str(forward), str(backward), str(num_copies), size(kept)))
    return rows


def _about_methods(methods: Methods) -> dict[str, str]:
    """Return a line about each method, from the docstring of its file, or of its class if the file holds several."""
    in_file = Counter(map(getmodule, methods.values()))
    described = {
        name: method if in_file[file := getmodule(method)] > 1 else file or method for name, method in methods.items()
    }
    return {name: (getdoc(what) or "").partition("\n")[0] + _facts(methods[name]) for name, what in described.items()}


def _facts(method: type[Method]) -> str:
    """Return a method's need of labels and its paper, in brackets; empty if it has neither."""
    facts = [*(["needs labels"] if method.needs_labels else []), *([method.paper] if method.paper else [])]
    return f" ({', '.join(facts)})" if facts else ""


def _headline(text: str, name: str) -> str:
    """Return the first line of a recipe without ``# name: ``."""
    return text.partition("\n")[0].removeprefix(f"# {name}: ")
