"""Reads and writes YAML: ``1e-4`` is a number, and a key that stands twice is a mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ebclab.errors import ConfigError

_FLOAT = "tag:yaml.org,2002:float"
_EXPONENT_WITHOUT_POINT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")  # YAML 1.1 calls these text
_FIRST_CHARACTERS = list("-+.0123456789")

_LONGEST_VALUE = 80  # characters of a value that a message shows


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


_Dumper.add_representer(list, _Dumper.represent_list)
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(_FLOAT, _EXPONENT_WITHOUT_POINT, _FIRST_CHARACTERS)


def from_yaml(text: str, where: str) -> Any:
    """Return the plain values that YAML ``text`` stands for.

    Args:
        text: YAML.
        where: What an error message calls the text, such as a path.

    Raises:
        ConfigError: The text is not YAML, or a key stands twice.
    """
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([f"{where}{place}: not valid YAML, {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{where}: not valid YAML, {' '.join(str(error).split())}"]) from error


def mapping_from_yaml(text: str, where: str) -> dict[str, Any]:
    """Return ``text`` as a mapping; an empty text is an empty one.

    Raises:
        ConfigError: As ``from_yaml``, or the text is no mapping.
    """
    value = from_yaml(text, where)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(
            [f"{where}: no settings, got {shortened(repr(value))}; write `section:` and its settings indented below it"]
        )
    return value


def load_yaml_file(path: Path, where: str = "") -> dict[str, Any]:
    """Return the settings in a YAML file, which messages call ``where`` when that is not its path.

    Raises:
        ConfigError: The file cannot be read, or as ``mapping_from_yaml``.
    """
    where = where or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{where}: cannot be read, got {error.strerror}; give the path of a YAML file"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            [f"{where}: not text, got byte {error.object[error.start]:#04x}; give a YAML file"]
        ) from error
    return mapping_from_yaml(text, where)


def shortened(text: str) -> str:
    """Return as much of a value's text as a message shows."""
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def dump_yaml(value: Any) -> str:
    """Return plain values as YAML that ``from_yaml`` reads back unchanged; lists stand on one line."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=10_000, allow_unicode=True
    )
    return text
