"""Options of commands are declared once, as fields of a request: the command line and the checks are made from them."""

from __future__ import annotations

from dataclasses import Field, fields, replace
from typing import Any

import pytest
import typer

from ebclab.card.request import CardRequest
from ebclab.cli.app import app
from ebclab.config.options import option_problems, word_of
from ebclab.reproduce.request import ReproduceRequest
from ebclab.sweeps.request import SweepChoices

REQUESTS: dict[str, tuple[Any, set[str]]] = {
    "evaluate": (CardRequest(("run",)), set()),
    "sweep": (SweepChoices(), set()),
    "reproduce": (ReproduceRequest("ebclr/table1"), set()),
}
"""A valid request for each verb, and its fields that only Python sets."""

FIELDS = [(verb, entry) for verb, (request, _) in REQUESTS.items() for entry in fields(request)]


def _named(given: object) -> str | None:
    return given.name if isinstance(given, Field) else None


def _outside(entry: Field[Any]) -> list[Any]:
    """Return values just outside an option's range, and a word that is none of its choices."""
    facts, values = entry.metadata, []
    values += [facts[key] - 1 for key in ("minimum",) if key in facts]
    values += [facts[key] + 1 for key in ("maximum",) if key in facts]
    values += [facts[key] for key in ("above", "below") if key in facts]
    values += ["nonesuch"] if facts["choices"] or "Literal" in str(entry.type) else []
    return [(value,) if str(entry.type).startswith("tuple") else value for value in values]


@pytest.mark.parametrize(("verb", "entry"), FIELDS, ids=_named)
def test_an_option_is_on_the_command_line_with_its_meaning(verb: str, entry: Field[Any]) -> None:
    command: Any = typer.main.get_command(app)
    shown = {each.name: each for each in command.commands[verb].params}
    if entry.name in REQUESTS[verb][1]:
        assert entry.name not in shown
    else:
        assert shown[entry.name].help == entry.metadata["doc"].strip()
        assert word_of(entry) in (*shown[entry.name].opts, shown[entry.name].metavar or entry.name.upper())


@pytest.mark.parametrize(("verb", "entry"), FIELDS, ids=_named)
def test_a_value_outside_an_options_range_is_a_sentence_with_its_name(verb: str, entry: Field[Any]) -> None:
    request, _ = REQUESTS[verb]
    assert option_problems(request) == []
    for value in _outside(entry):
        (problem,) = option_problems(replace(request, **{entry.name: value}))
        assert problem.startswith(f"{word_of(entry)}: ")
        assert f"got {value[0] if isinstance(value, tuple) else value!r}" in problem


@pytest.mark.parametrize(("verb", "entry"), FIELDS, ids=_named)
def test_ends_of_an_options_range_are_allowed(verb: str, entry: Field[Any]) -> None:
    request, _ = REQUESTS[verb]
    for value in (entry.metadata[key] for key in ("minimum", "maximum") if key in entry.metadata):
        given = (value,) if str(entry.type).startswith("tuple") else value
        assert option_problems(replace(request, **{entry.name: given})) == []
