"""What a setting takes, in words, and checks of a value and of a section; problems are collected, not raised."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from ebclab.config.addresses import credentials_problem, shortened
from ebclab.config.names import did_you_mean
from ebclab.config.yaml_text import Plain, text_problem

if TYPE_CHECKING:
    from pydantic import TypeAdapter


LARGEST = 1e30
"""No setting is larger: float32 ends at 3.4e38, and steps multiply settings (learning rate, batch size, gradient)."""

LARGEST_WHOLE = 2**63 - 1
"""No whole number is larger: torch's sizes have 64 bits."""

_TYPE_WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
}
_BOUND_WORDS = {"minimum": "at least", "above": "above", "maximum": "at most", "below": "below"}


def choices(hint: Any) -> list[str]:
    """Return the allowed words of a ``Literal`` type, empty for any other type."""
    return [str(choice) for choice in get_args(hint)] if get_origin(hint) is Literal else []


def type_in_words(hint: Any) -> str:
    """Return the name of type ``hint`` in messages."""
    if hint in _TYPE_WORDS:
        return _TYPE_WORDS[hint]
    if words := choices(hint):
        return f"one of {', '.join(words)}"
    inner = [part for part in get_args(hint) if part is not Ellipsis]
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(type_in_words(part) for part in inner)
    if get_origin(hint) is tuple:
        length = "" if Ellipsis in get_args(hint) else f"{len(inner)} of them, "
        return f"a list ({length}each {type_in_words(inner[0])})"
    return str(getattr(hint, "__name__", hint))


def bounds_in_words(field: Field[Any]) -> str:
    """Return the range of a field: ``at least 0, below 1``; empty when it has none."""
    return ", ".join(
        f"{word} {field.metadata[key]:.10g}" for key, word in _BOUND_WORDS.items() if key in field.metadata
    )


def expectation(field: Field[Any], hint: Any) -> str:
    """Return type, range and unit of a field: ``a whole number, at least 1 (unit: epochs)``."""
    bounds = bounds_in_words(field)
    unit = f" (unit: {field.metadata['unit']})" if "unit" in field.metadata else ""
    return type_in_words(hint) + (f", {bounds}" if bounds else "") + unit


def settings_of(config_type: type) -> dict[str, Field[Any]]:
    """Return the fields of a section's dataclass by name."""
    return {entry.name: entry for entry in fields(config_type)}


class Problems:
    """Problems found so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []  # a problem each, in the order in which they were added
        self.wrong: set[str] = set()  # dotted keys whose value cannot be used

    def add(self, key: str, text: str) -> None:
        """Record that the value of ``key`` cannot be used, and why."""
        self.lines.append(f"{key}: {text}")
        self.wrong.add(key)

    def add_lines(self, lines: Iterable[str], section: str = "") -> None:
        """Record lines ``<key>: ...`` about several settings, except lines about a setting already found wrong.

        Args:
            section: The section that the names in the lines belong to; empty if they are dotted keys.
        """
        prefix = f"{section}." if section else ""
        wrong = [key.removeprefix(prefix) for key in self.wrong if key.startswith(prefix)]
        judged = re.compile(r"\b(" + "|".join(map(re.escape, wrong)) + r")\b") if wrong else None
        self.lines += [f"{prefix}{line}" for line in lines if not (judged and judged.search(line))]


def check_section(
    section: str,
    config_type: type,
    given: Mapping[str, Any],
    describe_unknown: Callable[[str], str],
    problems: Problems,
) -> Any:
    """Return the section's config; wrong values are reported and replaced by their defaults.

    Args:
        config_type: Its dataclass, every field with a default.
        describe_unknown: Makes the line about a name that is not a setting of the section.
    """
    hints = _hints(config_type)
    settings = settings_of(config_type)
    values = {}
    for name, value in given.items():
        if name not in settings:
            problems.lines.append(describe_unknown(str(name)))
        elif problem := value_problem(value, settings[name], hints[name]):
            problems.add(f"{section}.{name}", problem)
        else:
            values[name] = _typed(value, hints[name])
    config = config_type(**values)
    if hasattr(config, "problems"):
        problems.add_lines(config.problems(), section)
    return config


def usable_texts(mapping: Mapping[str, Any], problems: Problems, section: str = "") -> Plain:
    """Return settings without texts that no setting can have, which are reported."""
    usable = {}
    for name, value in mapping.items():
        key = f"{section}.{name}" if section else str(name)
        if isinstance(value, str) and (problem := text_problem(value)):
            problems.add(key, problem)
        else:
            usable[name] = usable_texts(value, problems, key) if isinstance(value, Mapping) else value
    return usable


def value_problem(value: Any, field: Field[Any], hint: Any) -> str | None:
    """Return what is wrong with ``value`` as a setting (length, credentials, type, choice, size or range), or None."""
    from pydantic import ValidationError

    if isinstance(value, str) and (problem := text_problem(value) or credentials_problem(value)):
        return problem
    try:
        typed = _typed(value, hint)
    except (ValidationError, TypeError):  # json.dumps raises TypeError for a mapping with a date as a key
        words = choices(hint)
        if words and isinstance(value, str):
            return f"no such choice, got {shown(value)}; {did_you_mean(value, words)}"
        return f"wrong type, got {shown(value)}; must be {expectation(field, hint)}"
    numbers = [
        number for number in (typed if isinstance(typed, tuple) else (typed,)) if isinstance(number, int | float)
    ]
    wrong = None if all(within(number, field.metadata) for number in numbers) else "out of range"
    if any(abs(number) > LARGEST_WHOLE for number in numbers if isinstance(number, int)):
        wrong = f"more than {LARGEST_WHOLE:,}"
    if any(abs(number) > LARGEST for number in numbers if math.isfinite(number)):
        wrong = "too large to compute with in float32"
    return f"{wrong}, got {shown(value)}; must be {expectation(field, hint)}" if wrong else None


def shown(value: Any) -> str:
    """Return ``value`` for a message: in YAML's notation of null, true and false, and shortened."""
    words = {None: "null", True: "true", False: "false"}
    return shortened(words[value] if value is None or isinstance(value, bool) else repr(value))


def as_written(value: Any) -> str:
    """Return ``value`` as it is written after ``--set KEY=``."""
    return value if isinstance(value, str) else shown(value)


def short(value: Any) -> str:
    """Return ``value`` for a narrow column: as it is written, with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else as_written(value)


def _typed(value: Any, hint: Any) -> Any:
    """Return ``value`` as type ``hint``; only lists are converted to tuples and ints to floats."""
    return _adapter(hint).validate_json(json.dumps(value, default=str), strict=True)


@cache
def _hints(config_type: type) -> dict[str, Any]:
    return get_type_hints(config_type)  # a millisecond; a list of studies asks thousands of times


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def within(number: float, metadata: Mapping[str, Any]) -> bool:
    """Return whether ``number`` is finite and in the range that ``metadata`` states."""
    return bool(
        metadata.get("minimum", -math.inf) <= number <= metadata.get("maximum", math.inf)
        and metadata.get("above", -math.inf) < number < metadata.get("below", math.inf)
    )
