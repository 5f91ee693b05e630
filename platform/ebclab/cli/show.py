"""``ebclab show``: settings, methods, recipes, view recipes, probe protocols and groups of the card, as text."""

from __future__ import annotations

import shutil
import textwrap
from typing import Annotated

import typer

from ebclab.cli import options
from ebclab.cli.options import composed


def show(
    method: Annotated[
        str | None, typer.Argument(help="Print the resolved settings of this method.", show_default=False)
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Start from these named settings.")] = None,
    config: Annotated[str | None, typer.Option(help="YAML file of settings.")] = None,
    assignments: Annotated[list[str] | None, options.set_option("Any setting.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say beside each setting what it means.")] = False,
    methods: Annotated[bool, typer.Option("--methods", help="List the methods.")] = False,
    recipes: Annotated[bool, typer.Option("--recipes", help="List the recipes.")] = False,
    views: Annotated[bool, typer.Option("--views", help="List the view recipes.")] = False,
    protocols: Annotated[bool, typer.Option("--protocols", help="List the linear probe protocols.")] = False,
    card: Annotated[bool, typer.Option("--card", help="List the groups of the evaluation card.")] = False,
) -> None:
    """Print settings as YAML that `--config` takes back, or list what can be named."""
    from ebclab.config import listing, to_yaml

    if protocols:
        from ebclab.evaluation.protocols import PROTOCOLS

        _print_pairs({name: protocol.doc for name, protocol in PROTOCOLS.items()})
    if card:
        from ebclab.card.catalog import GROUPS

        _print_pairs({name: group.info.in_words() for name, group in GROUPS.items()})
    if methods:
        _print_pairs(listing("methods"))
    if recipes:
        _print_pairs(listing("recipes"))
    if views:
        _print_pairs(listing("views"))
    if method is not None:
        settings = composed(method, recipe, config, assignments or [])
        typer.echo(to_yaml(settings, explain=explain), nl=False)
    elif not (methods or recipes or views or protocols or card):
        from ebclab.errors import UserError

        raise UserError("show: nothing to show, got no METHOD and no list; try `ebclab show --methods`")


def _print_pairs(pairs: dict[str, str]) -> None:
    """Print names and their descriptions in two columns as wide as the terminal; one line each without a terminal."""
    width = max(map(len, pairs))
    columns = shutil.get_terminal_size(fallback=(10_000, 24)).columns
    for name, text in pairs.items():
        hanging = " " * (width + 2)
        typer.echo(textwrap.fill(text, columns, initial_indent=f"{name:<{width}}  ", subsequent_indent=hanging))
