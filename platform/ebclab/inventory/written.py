"""Fast reader of a few settings in a file written by ``to_yaml``, two hundred times faster than a YAML parser.

It reads only text in the form that ``to_yaml`` writes: one block per section, one line per key, each value on the line
of its key. Any other text is parsed as YAML. Both give the same values. What was found out about a section, a line or a
value is kept, since most sections of most runs are equal, and most lines of the others.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from ebclab.config.addresses import LONGEST
from ebclab.config.yaml_text import LARGEST_YAML, from_yaml, is_text, load_yaml_file
from ebclab.errors import ConfigError
from ebclab.regular_file import read_regular

_MOST_LINES = 1000  # of a file that is read so
_LONGEST_PART = 10_000  # characters between two empty lines
_KEY = "[a-z_][a-z_0-9]{0,99}"
_NO_SPACE = r"[^\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"  # a printable character
_FIRST = r"(?:[-?:](?![ \n]|$)|[^-?:,\[\]{}\#&*!|>'\"%@`])"
_PLAIN = rf"(?={_FIRST}){_NO_SPACE}++(?<!:)(?: ++(?!\#){_NO_SPACE}++(?<!:))*+"
_QUOTED = rf"'(?:''|(?!'){_NO_SPACE}| )*+'"
_IN_DOUBLE_QUOTES = rf'"(?:\\.|(?!["\\]){_NO_SPACE}| )*+"'
_ITEM = rf"(?:-?[A-Za-z0-9_./][-+A-Za-z0-9_./]*+(?: ++[A-Za-z0-9_./][-+A-Za-z0-9_./]*+)*+|{_QUOTED})"
_LIST = rf"\[(?:{_ITEM}(?:, {_ITEM})*+)?\]"
_VALUE = rf"{_PLAIN}|{_QUOTED}|{_IN_DOUBLE_QUOTES}|{_LIST}|\{{\}}"
_LINE = re.compile(rf"({_KEY}:)|((?:  )?{_KEY}): ({_VALUE})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]*+)?(?:e[-+]?[0-9]{1,4})?|-?\.inf|\.nan")
_PERHAPS_NO_TEXT = tuple("-+.0123456789=<")
_WHOLE = re.compile("0|[1-9][0-9]{0,17}")
_SIMPLE = rf"(?:{_WHOLE.pattern})(?:\.[0-9]{{1,17}})?"
_NUMBERS = re.compile(rf"\[(?:{_SIMPLE}(?:, {_SIMPLE})*)?\]")


def settings_at(path: str | Path, keys: tuple[str, ...]) -> list[Any]:
    """Return the values of settings, named section.key, in the file of a run, without validation; not to be changed."""
    try:
        values = _settings(read_regular(path, LARGEST_YAML).decode("utf-8"))
        if values is not None and all(key in values for key in keys):
            return [_value(values[key]) for key in keys]
    except (OSError, UnicodeDecodeError, ConfigError):
        pass
    content = load_yaml_file(Path(path))
    return [content[section][name] for section, _, name in (key.partition(".") for key in keys)]


def _settings(text: str) -> dict[str, str] | None:
    """Return the values of settings as they are written, named section.key, and every section's name without a value.

    None if a line has not the form of ``to_yaml``, or a key appears twice.
    """
    values, num_lines = dict[str, str](), 0
    for part in text.split("\n\n"):
        lines = _lines_of_part(part) if len(part) <= _LONGEST_PART else None
        if lines is None:
            return None
        values |= lines
        num_lines += len(lines)
    return values if len(values) == num_lines <= _MOST_LINES else None


@lru_cache(maxsize=10_000)
def _lines_of_part(text: str) -> dict[str, str] | None:
    """Return what ``_settings`` does, of what stands between two empty lines: usually a section."""
    values, section, num_lines = dict[str, str](), "", 0
    for line in filter(None, text.split("\n")):
        read = _line(line)
        if read is None:
            return None
        key, value = read
        if not key.startswith("  "):
            section = key.removesuffix(":") if key.endswith(":") else ""
            values[key.removesuffix(":")] = value
        elif section:
            values[f"{section}.{key[2:]}"] = value
        else:
            return None
        num_lines += 1
    return values if len(values) == num_lines else None


@lru_cache(maxsize=10_000)
def _line(line: str) -> tuple[str, str] | None:
    """Return key and value of a line; None if YAML may read another value or refuse it.

    Keys of sections end with a colon, and keys in them begin with two spaces.
    """
    found = _LINE.fullmatch(line) if len(line) <= LONGEST else None
    if found is None:
        return None
    key, value = found[1] or found[2], found[3] or ""
    if value.startswith(("[", '"')):
        try:
            _value(value)
        except ConfigError:
            return None
    elif value.startswith(_PERHAPS_NO_TEXT) and not (_NUMBER.fullmatch(value) or is_text(value)):
        return None
    return key, value


@lru_cache(maxsize=10_000)
def _value(written: str) -> Any:
    if _WHOLE.fullmatch(written):
        return int(written)
    if _NUMBERS.fullmatch(written):
        return [float(each) if "." in each else int(each) for each in written[1:-1].split(", ") if each]
    is_plain = not written.startswith(("'", '"', "[", "{"))
    return written if is_plain and is_text(written) else from_yaml(written, "a setting")
