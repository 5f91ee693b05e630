"""Layers of settings: one over another, and ``--set key=value`` over all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any

from ebclab.config.addresses import shortened
from ebclab.config.yaml_text import from_yaml
from ebclab.errors import ConfigError


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``lower`` with the values of ``upper`` over it, setting by setting.

    Two settings reset their section: a layer that sets ``views.recipe`` hides the view settings of lower layers, which
    may belong to another recipe; one that sets ``init.weights`` hides the digest of other weights.
    """
    for section, leader in (("views", "recipe"), ("init", "weights")):
        given = upper.get(section)
        if isinstance(given, Mapping) and leader in given:
            lower = {**lower, section: {}}
    return _overlay(lower, upper)


def apply_overrides(mapping: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return ``mapping`` with each ``key=value`` of ``overrides`` applied; of a repeated key, the last one counts.

    Args:
        mapping: Settings in the form of the YAML files.
        overrides: Texts such as ``method.temperature=0.2``; values are YAML. Unknown keys are found later, on parsing.
    """
    layer, problems = read_overrides(overrides)
    if problems:
        raise ConfigError(problems)
    return merge(mapping, layer)


def read_overrides(overrides: Iterable[str] | Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return ``key=value`` texts, or values by key, as one layer, with a line for each text that cannot be parsed."""
    if isinstance(overrides, Mapping):
        found: dict[str, Any] = {}
        for key, value in overrides.items():
            found = _overlay(found, _placed(str(key).split("."), value))
        return found, []
    layer: dict[str, Any] = {}
    problems = []
    for text in overrides:
        try:
            layer = _overlay(layer, deepcopy(_nested(text)))
        except ConfigError as error:
            problems += error.problems
    return layer, problems


@lru_cache(maxsize=1024)  # a list of studies reads the same texts thousands of times
def _nested(text: str) -> dict[str, Any]:
    """Return ``a.b=1`` as ``{"a": {"b": 1}}``."""
    key, equals, value_text = text.partition("=")
    parts = key.strip().split(".")
    if not equals:
        raise ConfigError(
            [f"--set: no = found, got {shortened(repr(text))}; write {shortened(key.strip()) or 'KEY'}=VALUE"]
        )
    if not all(parts):
        raise ConfigError(
            [
                f"--set: no key before =, got {shortened(repr(text))}; "
                "write SECTION.NAME=VALUE, such as training.epochs=5"
            ]
        )
    return _placed(parts, from_yaml(value_text, where=f"--set {shortened(key.strip())}"))


def _placed(parts: list[str], value: Any) -> dict[str, Any]:
    """Return ``value`` in its section: of a and b, ``{"a": {"b": value}}``."""
    for part in reversed(parts):
        value = {part: value}
    return dict(value)


def _overlay(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = _overlay(below, value)
        elif value is not None or not isinstance(below, Mapping):  # an empty section changes nothing
            merged[key] = value
    return merged


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted key."""
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
