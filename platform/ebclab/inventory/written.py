"""Fast reader of a few settings in a file written by ``to_yaml``.

It reads only text in the form that ``to_yaml`` writes: one block per section, one line per key, each value on the line
of its key, which alone is parsed as YAML. Any other text is parsed as a whole. Both give the same values. What was read
of a section or a value is kept, since most sections of most runs are equal, and most values of the others.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from ebclab.config.yaml_text import LARGEST_YAML, Plain, from_yaml, load_yaml_file
from ebclab.errors import ConfigError
from ebclab.regular_file import read_regular

_MOST_LINES = 1000  # of a file that is read so
_LONGEST_PART = 10_000  # characters between two empty lines
_LINE = re.compile("((?:  )?[a-z_][a-z_0-9]{0,99}):(?: ([^ |>].*))?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]{1,20})?")


def settings_at(path: str | Path, keys: tuple[str, ...]) -> list[Any]:
    """Return the values of settings, named section.key, in the file of a run, without validation; not to be changed."""
    try:
        values = _settings(read_regular(path, LARGEST_YAML).decode("utf-8"))
        if values is not None and all(key in values for key in keys):
            return [values[key] for key in keys]
    except (OSError, UnicodeDecodeError):
        pass
    content = load_yaml_file(Path(path))
    return [content[section][name] for section, _, name in (key.partition(".") for key in keys)]


def _settings(text: str) -> Plain | None:
    """Return the values of settings, named section.key, and every section's name without a value.

    None if a line has not the form of ``to_yaml``, or a key appears twice.
    """
    values: Plain = {}
    num_lines = 0
    for part in text.split("\n\n"):
        lines = _lines_of_part(part) if len(part) <= _LONGEST_PART else None
        if lines is None:
            return None
        values |= lines
        num_lines += len(lines)
    return values if len(values) == num_lines <= _MOST_LINES else None


@lru_cache(maxsize=10_000)
def _lines_of_part(text: str) -> Plain | None:
    """Return what ``_settings`` does, of what stands between two empty lines: usually a section."""
    values: Plain = {}
    section, num_lines = "", 0
    for line in filter(None, text.split("\n")):
        found = _LINE.fullmatch(line) if line.isprintable() else None
        if found is None:
            return None
        key, written = found.groups()
        if not key.startswith("  "):
            section = "" if written else key
        elif section and written:
            key = f"{section}.{key[2:]}"
        else:
            return None
        try:
            values[key] = _value(written) if written else None
        except ConfigError:
            return None
        num_lines += 1
    return values if len(values) == num_lines else None


@lru_cache(maxsize=10_000)
def _value(written: str) -> Any:
    """Return what YAML reads after a key, on the line of the key."""
    if number := _NUMBER.fullmatch(written):
        return float(written) if number[1] else int(written)
    return from_yaml(f"key: {written}", "a setting")["key"]
