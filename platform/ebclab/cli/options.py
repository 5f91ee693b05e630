"""Options shared by several commands, and a decorator that passes a command's options as one typed object."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from ebclab.config.addresses import LOCATIONS
from ebclab.errors import UserError
from ebclab.formatting import fitted as in_terminal
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.config import ExperimentConfig

Options = TypeVar("Options")

RESULTS = "results"
"""Marks an option that names an output or input of a command: a run, a sweep, an export, a report.

On a cluster, such a path is on the head node, which ``submit`` reports.
"""

Method = Annotated[
    str,
    typer.Argument(
        help="Method (`ebclab show --methods` lists them), or your own class as package.module:Class.",
        show_default=False,
    ),
]
Dataset = Annotated[str | None, typer.Option(help="Same as --set data.name=...")]
DataRoot = Annotated[
    str | None,
    typer.Option(
        "--data-root",
        help="Folder of datasets; default: data.root of the settings, else $EBCLAB_DATA, else ~/.cache/ebclab.",
    ),
]


def set_option(help_text: str) -> Any:
    """Return the option ``--set`` with a help text."""
    return typer.Option("--set", metavar="KEY=VALUE", help=help_text)


def init_option(help_text: str) -> Any:
    """Return the option ``--init`` with a help text."""
    return typer.Option("--init", metavar="DIR", help=help_text)


def resume_option(help_text: str) -> Any:
    """Return the flag ``--resume`` with a help text."""
    return typer.Option("--resume", help=help_text)


def takes(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Return a decorator that passes a command's options as one object; typer sees one parameter per field.

    Args:
        options: A dataclass whose fields are annotated as typer parameters.
    """
    hints = get_type_hints(options, include_extras=True)
    fields = inspect.signature(options).parameters.values()
    signature = inspect.Signature([field.replace(annotation=hints[field.name]) for field in fields])

    def with_parameters(body: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(body)
        def verb(**given: Any) -> None:
            body(options(**given))

        verb.__signature__ = signature  # type: ignore[attr-defined]
        return verb

    return with_parameters


def as_assignments(settings: Mapping[str, object], assignments: Iterable[str] | None) -> list[str]:
    """Return options that are settings in the form of ``--set``, before the user's own, which take precedence.

    Args:
        settings: Value of each option by the key of its setting; None if it was omitted.
        assignments: The user's own assignments.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items()] + [*(assignments or ())]


def with_named_cluster(settings: ExperimentConfig, overrides: list[str], where: str) -> ExperimentConfig:
    """Return settings without a cluster's address that only a file names: ``--set`` or $RAY_ADDRESS must name one.

    The cluster at an address can control this process, so a file alone must not select one. $RAY_ADDRESS replaces the
    address of a file.

    Args:
        settings: Settings of this command.
        overrides: Texts of ``--set``.
        where: Source of the other settings, for messages.

    Raises:
        UserError: A file names a cluster, and the user has named none.
    """
    from ebclab.config.named_hosts import cluster_problem, name_hosts_in

    name_hosts_in(overrides)
    if settings.resources.address is None or not (problem := cluster_problem(settings.resources.address, where)):
        return settings
    if os.environ.get("RAY_ADDRESS"):
        return replace(settings, resources=replace(settings.resources, address=None))
    raise UserError(f"resources.address: {problem}")


def composed(
    method: str, recipe: str | None, config: str | None, overrides: list[str], *, look: bool = True
) -> ExperimentConfig:
    """Return the settings of a command line; those that fit images given by location are chosen and reported.

    Args:
        method: Name of the method.
        recipe: Name of a recipe.
        config: YAML file, by path or by address.
        overrides: Texts of ``--set``.
        look: Inspect the images. If False, e.g. since they are on another machine, views that would be chosen are
            replaced by none.

    Raises:
        UserError: A file cannot be read, or settings are invalid.
    """
    from ebclab.config import compose, load_yaml_file
    from ebclab.storage.object_store import fetched

    file = None if config is None else load_yaml_file(fetched(config))
    return compose(method, recipe, file, overrides, fit=_fitted if look else _not_looked_at)


def _fitted(mapping: dict[str, Any]) -> dict[str, Any]:
    if not _names_a_place(mapping):
        return mapping
    from ebclab.data.fitting import fitted

    return fitted(mapping, lambda line: say(in_terminal(line, sys.stderr), err=True))


def _not_looked_at(mapping: dict[str, Any]) -> dict[str, Any]:
    views = mapping.get("views") or {}
    if not _names_a_place(mapping) or not isinstance(views, dict) or views.get("recipe", "auto") != "auto":
        return mapping
    return {**mapping, "views": {**views, "recipe": "none"}}


def _names_a_place(mapping: Mapping[str, Any]) -> bool:
    """Return whether the images are given by location."""
    data = mapping.get("data")
    return isinstance(data, Mapping) and str(data.get("name")).startswith(LOCATIONS)
