"""Settings in words: what a field expects, and all settings as YAML, optionally with comments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ebclab.config.experiment import SECTIONS, ExperimentConfig, settings_of, to_mapping
from ebclab.config.yaml_text import dump_yaml

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


def to_yaml(config: ExperimentConfig, explain: bool = False) -> str:
    """Return every setting of ``config`` as YAML that ``parse_yaml`` reads back unchanged.

    Args:
        explain: Add a comment to each setting: meaning, choices or range, unit, symbol in the paper.
    """
    types = {"method": type(config.method), **SECTIONS}
    blocks = []
    for name, values in to_mapping(config).items():
        lines = _section_lines(name, values)
        if explain:
            comments = _section_comments(name, types[name], values) if name in types else [_seed_comment()]
            column = max(map(len, lines)) + 2
            lines = [f"{line:<{column}}# {comment}" for line, comment in zip(lines, comments, strict=True)]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _section_lines(name: str, values: Any) -> list[str]:
    """Return one top-level entry of the YAML form, one setting a line."""
    if not isinstance(values, dict):
        return [dump_yaml({name: values}).rstrip("\n")]
    return [f"{name}:", *("  " + dump_yaml({key: value}).rstrip("\n") for key, value in values.items())]


_OF_EVERY_METHOD = {"name": "Which method.", "digest": "SHA-256 of the file that defines its class."}


def _section_comments(name: str, config_type: type, values: Mapping[str, Any]) -> list[str]:
    """Return a comment for each of the section's lines."""
    hints = get_type_hints(config_type)
    first_line = (config_type.__doc__ or config_type.__name__).strip().splitlines()[0]
    method_name = [text for key, text in _OF_EVERY_METHOD.items() if key in values] if name == "method" else []
    return [
        first_line,
        *method_name,
        *(_comment(field, hints[key]) for key, field in settings_of(config_type).items()),
    ]


def _seed_comment() -> str:
    return _comment(settings_of(ExperimentConfig)["seed"], int)


def _comment(field: Field[Any], hint: Any) -> str:
    facts = [field.metadata.get("doc", "")]
    if words := choices(hint):
        facts.append(f"One of {', '.join(words)}.")
    if bounds := bounds_in_words(field):
        facts.append(f"{bounds[0].upper()}{bounds[1:]}.")
    if "unit" in field.metadata:
        facts.append(f"Unit: {field.metadata['unit']}.")
    if "symbol" in field.metadata:
        facts.append(f"In the paper: {field.metadata['symbol']}.")
    return " ".join(" ".join(facts).split())
