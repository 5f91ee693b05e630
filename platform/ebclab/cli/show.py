"""``ebclab show``: prints settings, methods, recipes, view recipes, probe protocols and groups of the card."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from inspect import getdoc, getmodule
from typing import TYPE_CHECKING, Literal

from ebclab.cli.options import composed, takes
from ebclab.config.options import option
from ebclab.config.recipes import list_recipes, recipe_text
from ebclab.config.sections import VIEW_RECIPES
from ebclab.formatting import size, terminal_columns
from ebclab.methods_by_name import Methods, catalogue
from ebclab.terminal import say

if TYPE_CHECKING:
    from energy_contrast.method import Method


@dataclass(frozen=True)
class ShowOptions:
    """Arguments and options of ``ebclab show``; see the help text of each option."""

    method: str | None = option(
        None, "Print the resolved settings of this method (also package.module:Class).", is_argument=True
    )
    recipe: str | None = option(None, "Start from these named settings.", panel="Settings")
    config: str | None = option(None, "YAML file of settings.")
    assignments: tuple[str, ...] = option((), "Any setting.", flag="--set", metavar="KEY=VALUE")
    explain: bool = option(False, "Explain each setting beside it.")
    methods: bool = option(False, "List the methods and their costs.", panel="Lists")
    recipes: bool = option(False, "List the recipes.")
    views: bool = option(False, "List the view recipes.")
    protocols: bool = option(False, "List the protocols of linear probes and of fine-tuning.")
    card: bool = option(False, "List the groups of the evaluation card.")


@takes(ShowOptions)
def show(asked: ShowOptions) -> None:
    """Print settings as YAML that `--config` takes back, or list what can be named.

    Examples:

    ebclab show --methods

    ebclab show simclr --recipe cifar10-small --explain
    """
    from ebclab.config import to_yaml

    if asked.protocols:
        from ebclab.evaluation.protocols import FINE_TUNING, PROTOCOLS

        _print_pairs({name: protocol.doc for name, protocol in PROTOCOLS.items()})
        _print_pairs({f"--fine-tuning {name}": protocol.doc for name, protocol in FINE_TUNING.items()})
    if asked.card:
        from ebclab.card.groups import GROUPS

        _print_pairs({name: group.in_words() for name, group in GROUPS.items()})
    if asked.methods:
        _print_pairs(listing("methods"))
        _print_costs(cost_rows())
    if asked.recipes:
        _print_pairs(listing("recipes"))
    if asked.views:
        _print_pairs(listing("views"))
    if asked.method is not None:
        settings = composed(asked.method, asked.recipe, asked.config, [*asked.assignments])
        say(to_yaml(settings, explain=asked.explain), end="")
    elif not (asked.methods or asked.recipes or asked.views or asked.protocols or asked.card):
        from ebclab.errors import UserError

        raise UserError("show: nothing to show, got no METHOD and no list; try `ebclab show --methods`")


def _print_pairs(pairs: dict[str, str]) -> None:
    """Print names and descriptions in two columns, wrapped at the terminal's width; unwrapped without a terminal."""
    width = max(map(len, pairs))
    columns = terminal_columns()
    for name, text in pairs.items():
        hanging = " " * (width + 2)
        say(textwrap.fill(text, columns, initial_indent=f"{name:<{width}}  ", subsequent_indent=hanging))


def _print_costs(rows: list[tuple[str, ...]]) -> None:
    say(
        "\nWhat a training step takes at default settings: images that pass forward and\n"
        "backward through the encoder and slow copies of it, for each image of the\n"
        "batch, and what is kept from step to step beside networks and optimizer,\n"
        "with 50,000 training images of 3x32x32 pixels.\n"
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
        say("  ".join([f"{name:<{widths[0]}}", *padded]))


def listing(kind: Literal["methods", "recipes", "views"], methods: Methods | None = None) -> dict[str, str]:
    """Return name and one line about each method, recipe or view recipe."""
    match kind:
        case "methods":
            return _about_methods(catalogue() if methods is None else methods)
        case "recipes":
            return {name: recipe_text(name).partition("\n")[0].removeprefix(f"# {name}: ") for name in list_recipes()}
        case "views":
            return {name: recipe.doc for name, recipe in VIEW_RECIPES.items()}


def cost_rows(methods: Methods | None = None) -> list[tuple[str, ...]]:
    """Return rows with the cost of a training step of each method at its default settings, the first row being titles.

    The columns: name; images passed through the encoder and its copies, for each image of the batch; those of them with
    a backward pass; slow copies of the encoder; bytes kept from step to step, networks not counted, for 50,000 training
    images of 3x32x32 pixels.
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
    facts = [*(["needs labels"] if method.needs_labels else []), *([method.paper] if method.paper else [])]
    return f" ({', '.join(facts)})" if facts else ""
