"""Reads and writes YAML: ``1e-4`` is a number, and a repeated key is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from ebclab.config.addresses import LONGEST, shortened
from ebclab.errors import ConfigError
from ebclab.formatting import visible
from ebclab.regular_file import read_regular

Plain = dict[str, Any]
"""Plain values by name, as in YAML files: most often sections by name, in each its settings by name."""

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
JsonObject = dict[str, JsonValue]
"""What JSON and YAML can hold, checked down to the leaves: what we write, not what we read."""

_FLOAT = "tag:yaml.org,2002:float"
_EXPONENT_WITHOUT_POINT = re.compile(r"[-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)[eE][-+]?[0-9]++$")
"""Numbers that YAML 1.1 calls text."""
_READ_OTHERWISE = re.compile(r"[-+]?(?:0[0-9_]+$|[0-9_]+:)")  # octal 010, base sixty 1:30
_FIRST_CHARACTERS = list("-+.0123456789")

LARGEST_YAML = 1 << 20
"""Largest size of a file, bytes."""

_LONGEST_PROBLEM = 250  # characters of what PyYAML says
_MOST_VALUES = 100_000
_DEEPEST = 50  # lists and mappings within each other
_LONGEST_NUMBER = 80  # bits
_NOT_CONSTRUCTED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""Exceptions that PyYAML raises on invalid values, such as the date 2020-13-45."""


def _refused(problem: str, at: Any) -> yaml.MarkedYAMLError:
    """Return the error about a node or an event of YAML."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


class _Loader(yaml.SafeLoader):
    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _count(node, {}, 1)
        return node

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        problem = length_problem(event.value)
        if problem and event.implicit != (False, True):  # patterns look for a number in it, as it is not in quotes
            raise _refused(problem, event)
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except _NOT_CONSTRUCTED as error:
            kind = node.tag.rpartition(":")[2]
            raise _refused(f"no {kind}, got {shortened(str(node.value))}", node) from error
        if isinstance(value, int | float) and _READ_OTHERWISE.match(str(node.value)):
            raise _refused(
                f"{shortened(node.value)} is {shortened(str(value))} in YAML; write that, or quote it as text", node
            )
        if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
            raise _refused("a number of too many digits", node)
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise _refused("half a character", node)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in seen:
                raise _refused(f"the key {shortened(key.value)} appears twice", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _count(node: yaml.Node, known: dict[yaml.Node, int], depth: int) -> int:
    """Return how many values a node contains, each alias counted as a copy."""
    if depth > _DEEPEST:
        raise _refused(f"lists within lists, deeper than {_DEEPEST}", node)
    if node in known:
        if known[node] == 0:
            raise _refused("a value that holds itself", node)
        return known[node]
    known[node] = 0
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        inner = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        inner = node.value
    known[node] = 1 + sum(_count(part, known, depth + 1) for part in inner)
    if known[node] > _MOST_VALUES:
        raise _refused(f"more than {_MOST_VALUES:,} values", node)
    return known[node]


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # in quotes all that is not seen can be escaped; PyYAML would write most of it as it is
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if visible(data) != data else None)


_Dumper.add_representer(list, _Dumper.represent_list)
_Dumper.add_representer(str, _Dumper.represent_str)
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(_FLOAT, _EXPONENT_WITHOUT_POINT, _FIRST_CHARACTERS)


def from_yaml(text: str, where: str) -> Any:
    """Return the plain values in YAML ``text``."""
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(
            [f"{where}{place}: not valid YAML, {shortened(str(error.problem), _LONGEST_PROBLEM)}"]
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            [f"{where}: not valid YAML, {shortened(' '.join(str(error).split()), _LONGEST_PROBLEM)}"]
        ) from error
    except RecursionError:
        raise ConfigError([f"{where}: not valid YAML, lists within lists, deeper than {_DEEPEST}"]) from None


def mapping_from_yaml(text: str, where: str) -> Plain:
    """Return ``text`` as a mapping; an empty text gives an empty one."""
    value = from_yaml(text, where)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(
            [f"{where}: no settings, got {shortened(repr(value))}; write `section:` and its settings indented below it"]
        )
    return value


def load_yaml_file(path: Path, where: str = "") -> Plain:
    """Return the settings in a YAML file; messages call it ``where``, or by its path if that is empty."""
    where = where or str(path)
    try:
        text = read_regular(path, LARGEST_YAML).decode("utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError([f"{where}: cannot be read, got {reason}; give the path of a YAML file"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            [f"{where}: not text, got byte {error.object[error.start]:#04x}; give a YAML file"]
        ) from error
    return mapping_from_yaml(text, where)


def length_problem(text: str) -> str | None:
    """Return what is wrong with a text that is too long for a setting, else None."""
    if len(text) <= LONGEST:
        return None
    return f"longer than {LONGEST:,} characters, got {len(text):,}, {shortened(repr(text))}; write a shorter one"


def text_problem(text: str) -> str | None:
    """Return what is wrong with a text as a setting: too long, or with characters that YAML does not allow."""
    if yaml.reader.Reader.NON_PRINTABLE.search(text):
        return f"a control character or half a character, got {shortened(repr(text))}; leave it out"
    return length_problem(text)


def dump_yaml(value: Any) -> str:
    """Return plain values as YAML that ``from_yaml`` reads back unchanged; lists are on one line."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=10_000, allow_unicode=True
    )
    return visible(text)
