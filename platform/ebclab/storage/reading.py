"""Reads JSON files that this package writes: whatever is in them, the answer is their values or one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ebclab.errors import RunError, UserError
from ebclab.regular_file import read_regular
from ebclab.storage.checksum import require_checksum

LARGEST = 64 << 20
"""Bytes of the largest file with one JSON value."""

LARGEST_LOG = 8 << 30
"""Bytes of the largest file with a JSON value a line."""

_DEEPEST = 50  # lists and mappings within each other
_LONGEST_NUMBER = 24  # digits; 64 bits have 20
_LONG_NUMBER = re.compile(f"[0-9]{{{_LONGEST_NUMBER + 1}}}")


def json_value(content: bytes) -> Any:
    """Return the value in a JSON file of ours. A kind that carries a checksum is compared with it.

    Raises:
        ValueError: It is no JSON as ``foreign_json_value`` takes it, or does not match its checksum.
    """
    value = foreign_json_value(content)
    require_checksum(value)
    return value


def foreign_json_value(content: bytes) -> Any:
    """Return the value that JSON in UTF-8 stands for, whoever wrote it.

    Raises:
        ValueError: It is no JSON, is nested too deeply, or holds an endless number or half a character.
    """
    text = content.decode("utf-8")
    strict = _LONG_NUMBER.search(text) is not None
    try:
        value = json.loads(text, parse_int=_whole_number) if strict else json.loads(text)
    except RecursionError:
        raise ValueError(f"lists within lists, deeper than {_DEEPEST}") from None
    if text.count("[") + text.count("{") > _DEEPEST:
        _require_shallow(value)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be written or shown
    return value


def read_json(
    path: Path,
    where: str = "",
    *,
    what: str = "cannot be read",
    way_out: str = "restore the file",
    error: type[UserError] = RunError,
) -> Any:
    """Return the value in a JSON file, compared with its checksum where it has one.

    Args:
        path: The file.
        where: What messages call it; its path when empty.
        what: What messages say of a file that cannot be read.
        way_out: What messages tell the user to do.
        error: The kind of error to raise.

    Raises:
        UserError: Of the kind ``error``: the file cannot be read, is no regular file, too large, no JSON, or damaged.
    """
    try:
        return json_value(read_regular(path, LARGEST))
    except (OSError, ValueError) as reason:
        raise error(f"{where or path}: {what}, got {_in_words(reason)}; {way_out}") from reason


def read_json_object(
    path: Path,
    where: str = "",
    *,
    what: str = "cannot be read",
    way_out: str = "restore the file",
    error: type[UserError] = RunError,
) -> dict[str, Any]:
    """Return the mapping in a JSON file; arguments and errors are those of ``read_json``."""
    value = read_json(path, where, what=what, way_out=way_out, error=error)
    if not isinstance(value, dict):
        raise error(f"{where or path}: {what}, got {value!r:.80}; {way_out}")
    return value


def json_lines(content: bytes) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number of each line, from 1, and its mapping; None where the line is none."""
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            value = foreign_json_value(line)
        except ValueError:
            value = None
        yield number, value if isinstance(value, dict) else None


def lines_left_out(where: str, numbers: list[int]) -> str:
    """Return the sentence about lines of a log that cannot be read.

    Args:
        where: What messages call the file.
        numbers: Numbers of the lines, from 1.
    """
    shown = ", ".join(map(str, numbers[:5])) + (" ..." if len(numbers) > 5 else "")
    return f"{where}: {len(numbers)} of its lines cannot be read and are left out: {shown}"


def _whole_number(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER + 1:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _require_shallow(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _DEEPEST + 1:
            raise ValueError(f"lists within lists, deeper than {_DEEPEST}")
        inner = [entry for entry in level if isinstance(entry, dict | list)]
        level = [part for entry in inner for part in (entry.values() if isinstance(entry, dict) else entry)]


def _in_words(reason: OSError | ValueError) -> str:
    if isinstance(reason, UnicodeDecodeError):
        return f"byte {reason.object[reason.start]:#04x}, which is no text in UTF-8"
    if isinstance(reason, UnicodeEncodeError):
        return "half a character"
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
