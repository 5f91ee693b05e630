"""Options shared by several commands, and a decorator that passes a command's options as one typed object."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from ebclab.config.addresses import LOCATIONS, cluster_problem
from ebclab.config.options import DATA_ROOT, given_twice, option, word_of
from ebclab.config.yaml_text import Plain
from ebclab.errors import UserError
from ebclab.formatting import fitted as in_terminal
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.config import ExperimentConfig
    from ebclab.sweeps.resources import Limits

Options = TypeVar("Options")

RESULTS = "results"
"""Marks an option that names an output or input of a command: a run, a sweep, an export, a report.

On a cluster, such a path is on the head node, which ``submit`` reports.
"""

DataRoot = Annotated[str | None, typer.Option("--data-root", help=DATA_ROOT)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def set_option(help_text: str, panel: str | None = None) -> Any:
    """Return the option ``--set`` with a help text."""
    return typer.Option("--set", metavar="KEY=VALUE", help=help_text, rich_help_panel=panel)


@dataclass(frozen=True)
class SettingsOptions:
    """Options that compose the settings of a run, or of every trial of a sweep."""

    method: str = option(
        MISSING,
        "Method (`ebclab show --methods` lists them), or your own class as package.module:Class.",
        is_argument=True,
    )
    recipe: str | None = option(None, "Named settings; `ebclab show --recipes` lists them.", panel="Settings")
    config: str | None = option(None, "YAML file of settings, as printed by `ebclab show` or kept in a run.")
    dataset: str | None = option(None, sets="data.name")
    data_root: str | None = option(None, DATA_ROOT, sets="data.root")
    init: str | None = option(
        None,
        "Initial weights: an export, a finished run, or timm/NAME.",
        sets="init.weights",
        metavar="DIR",
        is_place_of_results=True,
    )
    assignments: tuple[str, ...] = option(
        (), "Any setting, e.g. method.temperature=0.2.", flag="--set", metavar="KEY=VALUE"
    )

    def overrides(self, **more: Mapping[str, object]) -> list[str]:
        """Return the options that are settings in the form of ``--set``, and the user's own, which may not differ.

        Args:
            more: Settings of options that give several, by the name of the option.
        """
        typed = {name: {key: value for key, value in each.items() if value} for name, each in more.items()}
        if problems := given_twice(self, self.assignments, typed):
            raise UserError("\n".join(problems))
        named = [entry for entry in fields(self) if entry.metadata["sets"]]
        given = {entry.metadata["sets"]: getattr(self, entry.name) for entry in named}
        for settings in more.values():
            given |= settings
        return as_assignments(given, self.assignments)


def concurrent_of(text: str) -> int | None:
    """Return a number of concurrent trials; None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise UserError(f"--concurrent: not a number of trials, got {text!r}; write auto or a number from 1")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """Options of how many trials run at once."""

    gpus_per_trial: float | None = option(None, "GPUs per trial; 0.25 puts four trials on one GPU.", panel="Resources")
    concurrent: int | None = option(
        None,
        "Number of concurrent trials; auto: as many as fit.",
        metavar="N",
        read=concurrent_of,
        text="auto",
    )

    def limits(self, seconds: float | None = None) -> Limits:
        """Return the resource limits of the trials, and the time limit of the search."""
        from ebclab.sweeps.resources import Limits

        return Limits(self.gpus_per_trial, self.concurrent, seconds)


def takes(options: type[Options]) -> Callable[[Callable[Concatenate[Options, ...], None]], Callable[..., None]]:
    """Return a decorator that passes a command's options as one object; typer sees one parameter per field.

    Further parameters of the command belong to the command line alone, e.g. ``--json``.
    """
    parameters, panel = [], None
    for entry, hint in _on_command_line(options):
        panel = entry.metadata["panel"] or panel
        parameters.append(_parameter(entry, hint, panel))

    def with_parameters(body: Callable[Concatenate[Options, ...], None]) -> Callable[..., None]:
        hints = get_type_hints(body, include_extras=True)
        _, *own = inspect.signature(body).parameters.values()
        own = [each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own]

        @wraps(body)
        def verb(**given: Any) -> None:
            alone = {each.name: given.pop(each.name) for each in own}
            body(read_options(options, given), **alone)

        verb.__signature__ = inspect.Signature([*parameters, *own])  # type: ignore[attr-defined]
        return verb

    return with_parameters


def read_options(options: type[Options], given: Mapping[str, Any]) -> Options:
    """Return the options with these values from a command line, which may hold others too.

    Arguments that are runs or sweeps may be names of these in their usual folders.
    """
    from ebclab.inventory.listing import place_named

    own: Any = options
    own, values, asked, problems = fields(own), dict[str, Any](), dict[str, Any](), list[str]()
    for entry, hint in _on_command_line(options):
        value, read = given[entry.name], entry.metadata.get("read")
        try:
            value = read(value) if read and value is not None else value
        except UserError as error:
            problems.append(str(error))
        value = tuple(value or ()) if get_origin(hint) is tuple and not read else value
        if entry.metadata["is_argument"] and entry.metadata["is_place_of_results"]:
            value = tuple(map(place_named, value)) if isinstance(value, tuple) else place_named(value)
        (values if entry in own else asked)[entry.name] = value
    if problems:
        raise UserError("\n".join(problems))
    for entry in own:
        if "given_of" in entry.metadata:
            values[entry.name] = {name: value for name, value in asked.items() if value not in (None, ())}
    return options(**values)


def _on_command_line(options: Any) -> Iterator[tuple[Field[Any], Any]]:
    """Yield fields and their types, in place of ``given_of`` those of a request, with None if they are omitted."""
    hints = get_type_hints(options, include_extras=True)
    for entry in fields(options):
        if "given_of" not in entry.metadata:
            yield entry, hints[entry.name]
            continue
        for asked, hint in _on_command_line(entry.metadata["given_of"]):
            optional = copy(asked)
            optional.default = None
            yield optional, hint


def _parameter(entry: Field[Any], hint: Any, panel: str | None) -> inspect.Parameter:
    facts, default = entry.metadata, inspect.Parameter.empty if entry.default is MISSING else entry.default
    if facts["read"]:
        hint, default = str | None, facts["text"]
    elif get_origin(hint) is tuple:
        hint, default = list[get_args(hint)[0]], default or None  # type: ignore[misc]
    elif get_origin(hint) is Literal:
        hint = str  # a word that is not a choice is reported with all other mistakes
    if facts["is_argument"]:
        asked: Any = typer.Argument(metavar=facts["metavar"], help=facts["doc"], show_default=False)
    else:
        word, metavar = facts["flag"] or word_of(entry), facts["metavar"]
        asked = typer.Option(word, metavar=metavar, help=facts["doc"], rich_help_panel=panel)
    hint = Annotated[hint, asked, *([RESULTS] if facts["is_place_of_results"] else [])]
    return inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def refuse_given(options: Any, names: Collection[str], why: str) -> None:
    """Refuse options of these names that have another value than by default; ``why`` has a place for the value."""
    for entry in fields(options):
        given = getattr(options, entry.name)
        if entry.name in names and given != entry.default:
            shown = ", ".join(given) if isinstance(given, tuple) else given
            raise UserError(f"{word_of(entry)}: {why.format(shown)}")


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
    """
    from ebclab.config.recipes import name_hosts_in

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
        config: YAML file, by path or by address.
        look: Inspect the images. If False, e.g. since they are on another machine, views that would be chosen are
            replaced by none.
    """
    from ebclab.config import compose, load_yaml_file
    from ebclab.storage.object_store import fetched

    file = None if config is None else load_yaml_file(fetched(config))
    return compose(method, recipe, file, overrides, fit=_fitted if look else _not_looked_at)


def _fitted(mapping: Plain) -> Plain:
    if not _names_a_place(mapping):
        return mapping
    from ebclab.data.fitting import fitted

    return fitted(mapping, lambda line: say(in_terminal(line, sys.stderr), err=True))


def _not_looked_at(mapping: Plain) -> Plain:
    views = mapping.get("views") or {}
    if not _names_a_place(mapping) or not isinstance(views, dict) or views.get("recipe", "auto") != "auto":
        return mapping
    return {**mapping, "views": {**views, "recipe": "none"}}


def _names_a_place(mapping: Mapping[str, Any]) -> bool:
    data = mapping.get("data")
    return isinstance(data, Mapping) and str(data.get("name")).startswith(LOCATIONS)
