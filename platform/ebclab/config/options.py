"""Options of commands: each is a field of a request that holds its meaning, its range and how a command writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from typing import Any, get_origin, get_type_hints

from ebclab.config.check import bounds_in_words, short, within
from ebclab.config.check import choices as literal_choices
from ebclab.config.names import did_you_mean
from ebclab.config.recipes import read_overrides
from ebclab.errors import UserError
from energy_contrast.settings import setting

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}

OPEN: Any = None
"""Default of an option that is decided by the others when a plan is made; the plan has a value for it."""

DATA_ROOT = "Folder of datasets; default: data.root of the settings, else $EBCLAB_DATA, else ~/.cache/ebclab."


def option(
    default: Any,
    doc: str = "",
    *,
    sets: str = "",
    flag: str = "",
    metavar: str | None = None,
    choices: Iterable[str] = (),
    read: Callable[[str], Any] | None = None,
    text: str | None = None,
    panel: str = "",
    is_argument: bool = False,
    is_place_of_results: bool = False,
    **limits: Any,
) -> Any:
    """Return a dataclass field from which ``cli.options.takes`` makes an option and ``option_problems`` its checks.

    Args:
        default: The value if none is given; MISSING if one is required.
        doc: What ``--help`` says.
        sets: Key of the setting that the option gives, as ``--set`` does; it is the ``doc`` if that is empty.
        flag: Name on the command line, if it is not that of the field.
        metavar: Name of the value in ``--help``.
        choices: Allowed words, apart from those of a ``Literal``; an empty text is always allowed.
        read: Converts the text on the command line to the value.
        text: The default on the command line, with ``read``.
        panel: Heading in ``--help`` of this option and of those after it; empty: that of the option before.
        is_argument: It is given by position.
        is_place_of_results: It names an output or an input of the command, which ``submit`` reports.
        limits: The range and unit, as of ``setting``.
    """
    described = setting(None, doc or f"Same as --set {sets}=...", **limits).metadata
    facts = {
        "sets": sets,
        "flag": flag,
        "metavar": metavar,
        "choices": tuple(choices),
        "read": read,
        "text": text,
        "panel": panel,
        "is_argument": is_argument,
        "is_place_of_results": is_place_of_results,
    }
    return field(default=default, metadata={**described, **facts})


def given_of(request: type) -> Any:
    """Return a dataclass field for the options of a request that are given, by name; all may be omitted."""
    return field(metadata={"given_of": request})


def word_of(entry: Field[Any]) -> str:
    """Return the name of an option on the command line: ``--train-limit``."""
    facts = entry.metadata
    if facts["is_argument"]:
        return facts["metavar"] or entry.name.upper()
    return facts["flag"].partition("/")[0] or "--" + entry.name.replace("_", "-")


def values_of(request: Any, options: Any, *, only_given: bool = False) -> dict[str, Any]:
    """Return the values that ``options`` has for the fields of a request, or those that are not the default."""
    values = {each: getattr(options, each.name) for each in fields(request)}
    return {each.name: value for each, value in values.items() if not (only_given and value == each.default)}


def option_problems(options: Any) -> list[str]:
    """Return what is wrong with single options of a request: words that are not a choice, numbers out of range."""
    hints, lines = get_type_hints(type(options)), []
    for entry in (each for each in fields(options) if "doc" in each.metadata):
        given, word = getattr(options, entry.name), word_of(entry)
        if isinstance(given, str) and get_origin(hints[entry.name]) is tuple:  # its letters would be taken one by one
            lines.append(f"{word}: a tuple is needed, got {given!r}; write ({given!r},)")
            continue
        words = [*entry.metadata["choices"], *filter(None, literal_choices(hints[entry.name]))]
        for value in given if isinstance(given, tuple) else (given,):
            if isinstance(value, str) and value and words and value not in words:
                lines.append(f"{word}: no such choice, got {value!r}; {did_you_mean(value, words)}")
            elif isinstance(value, int | float) and not within(value, entry.metadata):
                lines.append(f"{word}: must be {bounds_in_words(entry) or 'a number'}, got {short(value)}")
    return lines


def given_twice(options: Any, assignments: Iterable[str], more: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return a line for each setting that an option of a request and an assignment of ``--set`` give different values.

    Args:
        assignments: ``KEY=VALUE`` or ``METHOD:KEY=VALUE``.
        more: Settings of options that give several, by the name of the option.
    """
    words = {entry.name: word_of(entry) for entry in fields(options) if "doc" in entry.metadata}
    named = [entry for entry in fields(options) if entry.metadata.get("sets")]
    settings = {entry.name: {entry.metadata["sets"]: getattr(options, entry.name)} for entry in named}
    lines, may_differ = [], getattr(options, "may_differ", ())
    for text in assignments:
        start = text.partition("=")[0].rfind(":") + 1
        layer, _ = read_overrides([text[start:]])  # what is no assignment is reported with the settings
        for name, values in {**settings, **more}.items():
            for key, value in values.items():
                if start and key in may_differ:  # of one method
                    continue
                other: Any = layer
                for part in key.split("."):
                    other = other.get(part) if isinstance(other, Mapping) else None
                if None not in (value, other) and value != other:
                    got = f"got {short(value)} and {short(other)}"
                    lines.append(f"{words[name]}: gives {key} as --set does, {got}; leave one out")
    return lines


def seconds_of(text: str, option: str = "--time") -> float:
    """Return a duration such as ``8h``, ``1h30m`` or ``90s`` in seconds."""
    seconds = 0.0
    if re.fullmatch(r"(?:\d+(?:\.\d+)?[dhms])+", text.strip()):
        numbers, units = (re.split("([dhms])", text.strip())[start:-1:2] for start in (0, 1))
        seconds = sum(float(number) * _UNITS[unit] for number, unit in zip(numbers, units, strict=True))
    if seconds <= 0:
        raise UserError(f"{option}: not a duration, got {text!r}; write 8h, 45m or 1h30m")
    return seconds
