"""A submitted command line, read here with the code that will read it there: a typo costs no trip to the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebclab.config.timm_names import TIMM
from ebclab.storage.filesystem import is_address

_PLACES: dict[str, tuple[str, ...]] = {
    "pretrain": ("runs", "init"),
    "sweep": ("sweeps", "warm_start", "init"),
    "evaluate": ("run",),
    "report": ("sweeps", "to"),
    "export": ("source", "to"),
    "data prepare": ("to",),
    "runs list": ("runs", "sweeps"),
    "runs clean": ("runs", "sweeps"),
}
"""Options and arguments of each verb that are folders which a run leaves behind or reads."""


@dataclass(frozen=True)
class Checked:
    """A command line that was read without a mistake.

    Attributes:
        verb: Its verb, two words where there are two.
        given: Value of each of its options and arguments.
        notes: Sentences for the user.
    """

    verb: str
    given: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def check(arguments: Sequence[str]) -> Checked:
    """Read a command line as ``ebclab`` would, as far as that is possible without the cluster's folders.

    Args:
        arguments: What would stand after ``ebclab``; the verb is one that may be submitted.

    Raises:
        UserError: Settings, recipe, space or files are wrong. Wrong options end the process as they do locally.
    """
    verb, given = _parsed(arguments)
    notes = [_on_the_head_node(verb, given, arguments)]
    if verb in ("pretrain", "sweep"):
        notes.append(_checked_settings(verb, given))
    return Checked(verb, given, tuple(note for note in notes if note))


def _parsed(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the verb and what its own parser makes of the rest."""
    import typer

    from ebclab.cli.app import app

    command: Any = typer.main.get_command(app)
    context, words, rest = command.make_context("ebclab", list(arguments)), [], list(arguments)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        words.append(name)
        context = command.make_context(name, list(rest), parent=context)
    return " ".join(words), context.params


def _on_the_head_node(verb: str, given: dict[str, Any], arguments: Sequence[str]) -> str | None:
    """Return a sentence about folders of the head node, None when all lie in a store."""
    named = [given.get(name) for name in _PLACES.get(verb, ())]
    groups = (group if isinstance(group, list | tuple) else [group] for group in named if group)
    values = [text.partition("=")[2] if text.startswith("--") else text for text in arguments]
    in_a_store = {Path(value) for value in values if is_address(value)}  # a Path has lost one of the two slashes
    places = [place for group in groups for place in group if not str(place).startswith(TIMM)]
    local = [str(place) for place in places if Path(place) not in in_a_store]
    if not local:
        return None
    shown = ", ".join(place if place.startswith(("/", "~")) else f"~/{place}" for place in local)
    return f"on the head node, not here: {shown}; an address such as s3://BUCKET/FOLDER outlives the cluster"


def _checked_settings(verb: str, given: dict[str, Any]) -> str | None:
    """Compose settings as the verb will; what a resumed run has is known on the cluster only."""
    from ebclab.cli import pretrain, sweep

    if given["resume"]:
        return None
    if verb == "sweep":
        sweep.plan_of(given)
        return None
    if pretrain.settings_of(given).resources.workers:
        return None
    return "with resources.workers=0 the head node itself trains; --workers 1 or more trains on the cluster's workers"
