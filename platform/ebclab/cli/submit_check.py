"""Checks of ``ebclab submit`` before it sends a command line: options, settings, and the location of results."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ebclab.cli.options import RESULTS, read_options
from ebclab.cli.pretrain import PretrainOptions
from ebclab.cli.studies.compare import CompareOptions
from ebclab.cli.sweep import SweepOptions
from ebclab.config.addresses import is_address
from ebclab.config.timm_names import TIMM
from ebclab.methods_by_name import code_of, import_method, is_import_name


def notes_on(ebclab: Any, arguments: Sequence[str]) -> list[str]:
    """Check a command line as far as possible without the cluster's folders; return notes for the user.

    Args:
        arguments: The arguments after ``ebclab``, of a command that may be submitted.
    """
    words, command, given = _parsed(ebclab, arguments)
    notes = (_note_on_results(_results_in(command, given)), _note_on_settings(words, given))
    return [note for note in notes if note]


def named_code(ebclab: Any, arguments: Sequence[str]) -> list[Path]:
    """Return the packages and files of the methods that a command line names as ``package.module:Class``.

    Args:
        arguments: A command line that ``notes_on`` has accepted.
    """
    _, _, given = _parsed(ebclab, arguments)
    names = [name for name in (given.get("method"), *(given.get("methods") or ())) if name and is_import_name(name)]
    for name in names:
        import_method(name)
    return list(dict.fromkeys(map(code_of, names)))


def _parsed(ebclab: Any, arguments: Sequence[str]) -> tuple[str, Any, dict[str, Any]]:
    """Return the name of the command, the command, and its options by name, as parsed by the command's own parser."""
    command = ebclab
    context, words, rest = command.make_context("ebclab", list(arguments)), [], list(arguments)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        words.append(name)
        context = command.make_context(name, list(rest), parent=context)
    return " ".join(words), command, context.params


def _results_in(command: Any, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield each path or address that the user gave, or that is the default, for an option marked ``RESULTS``."""
    for parameter in inspect.signature(command.callback, eval_str=True).parameters.values():
        value = given.get(parameter.name)
        if value and RESULTS in getattr(parameter.annotation, "__metadata__", ()):
            yield from value if isinstance(value, list | tuple) else [value]


def _note_on_results(results: Iterable[str]) -> str | None:
    """Return a note on results in folders of the head node; None if all of them are in a store."""
    local = [place for place in results if not place.startswith(TIMM) and not is_address(place)]
    if not local:
        return None
    shown = ", ".join(place if place.startswith(("/", "~")) else f"~/{place}" for place in local)
    return f"on the head node, not here: {shown}; an address such as s3://BUCKET/FOLDER outlives the cluster"


def _note_on_settings(verb: str, given: dict[str, Any]) -> str | None:
    """Compose the settings as the command will, and return a note on them; None if there is none.

    Settings of a resumed run or sweep are known on the cluster only.
    """
    if verb == "sweep" and not (sweep := read_options(SweepOptions, given)).resume:
        sweep.plan(look=False)
        sweep.limits()
    if verb == "compare" and "methods" in (comparison := read_options(CompareOptions, given)).given:
        comparison.require_possible()
    if (
        verb == "pretrain"
        and not (run := read_options(PretrainOptions, given)).goes_on
        and not run.settings(look=False).resources.workers
    ):
        return (
            "with resources.workers=0 the head node itself trains; --workers 1 or more trains on the cluster's workers"
        )
    return None
