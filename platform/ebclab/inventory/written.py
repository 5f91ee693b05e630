"""Fast reader of a few settings in a file written by ``to_yaml``, a hundred times faster than a YAML parser.

It parses only text in the form that ``to_yaml`` writes: one block per section, one line per key, each value on the line
of its key. Any other text is parsed as YAML. Both give the same values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ebclab.config.yaml_text import LARGEST_YAML, load_yaml_file
from ebclab.regular_file import read_regular

_KEY = "[a-z_][a-z_0-9]*"
_NUMBER = r"-?[0-9]{1,20}(?:\.[0-9]*)?(?:e[-+]?[0-9]{1,4})?"
_WORD = r"[A-Za-z/](?:[!-~](?<![#'\"\[\]{},&*!|>%@`]))*(?<!:)"
_LIST = r"\[(?:(?:[A-Za-z0-9_.]+)(?:, [A-Za-z0-9_.]+)*)?\]"
_FORM = re.compile(rf"(?:(?:{_KEY}:|(?:  )?{_KEY}: (?:{_NUMBER}|{_WORD}|{_LIST}|''))?\n)*")
_WHOLE = re.compile("0|[1-9][0-9]{0,17}")
_WHOLES = re.compile(rf"\[(?:(?:{_WHOLE.pattern})(?:, (?:{_WHOLE.pattern}))*)?\]")
_TEXT = re.compile(_WORD)
_NO_TEXT = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


def settings_at(path: Path, keys: tuple[str, ...]) -> list[Any]:
    """Return the values of settings in the file of a run, without validation.

    Args:
        path: The file.
        keys: Settings as section.key. The fast reader supports strings, integers and lists of integers; for other
            values the file is parsed as YAML.

    Raises:
        ConfigError: The file cannot be read or is not YAML.
        KeyError: It has no such section or key.
        TypeError: A section is not a mapping.
    """
    try:
        sections = _sections(read_regular(path, LARGEST_YAML).decode("ascii"))
    except (OSError, UnicodeDecodeError):
        sections = None
    if sections is not None:
        found = [_value(sections.get(section, {}).get(key, "")) for section, key in map(_parts, keys)]
        if None not in found:
            return found
    content = load_yaml_file(path)
    return [content[section][key] for section, key in map(_parts, keys)]


def _parts(key: str) -> tuple[str, str]:
    section, _, name = key.partition(".")
    return section, name


def _sections(text: str) -> Mapping[str, Mapping[str, str]] | None:
    """Return the values by section and key, as text; None if the file does not have the form of ``to_yaml``."""
    if _FORM.fullmatch(text) is None:
        return None
    seen, sections, section = set[str](), dict[str, dict[str, str]](), ""
    for line in filter(None, text.split("\n")):
        key, _, value = line.partition(":")
        if key.startswith("  "):
            if not section or key[2:] in sections[section]:
                return None
            sections[section][key[2:]] = value[1:]
            continue
        if key in seen:
            return None
        seen.add(key)
        section = "" if value else key
        if section:
            sections[section] = {}
    return sections


def _value(written: str) -> str | int | list[int] | None:
    """Return a string, an integer or a list of integers; None for text that YAML may parse differently."""
    if _WHOLE.fullmatch(written):
        return int(written)
    if _WHOLES.fullmatch(written):
        return [int(each) for each in written[1:-1].split(", ") if each]
    is_text = _TEXT.fullmatch(written) is not None and written.lower() not in _NO_TEXT
    return written if is_text else None
