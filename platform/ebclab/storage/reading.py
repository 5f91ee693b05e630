"""JSON files that this package writes: with a checksum of their own, and read as plain values or as a dataclass.

Any content yields either its value or a one-line error.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ebclab.errors import RunError, UserError
from ebclab.regular_file import read_regular

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

LARGEST = 64 << 20
"""Maximum size in bytes of a file with one JSON value."""

LARGEST_LOG = 8 << 30
"""Maximum size in bytes of a file with one JSON value per line."""

_DEEPEST = 50  # maximum nesting depth of lists and mappings
_LONGEST_NUMBER = 24  # digits; 64-bit integers have at most 20
_KEY = "digest"  # of the checksum of a JSON object


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file with its SHA-256 under the key ``digest``."""
    return {**content, _KEY: _digest(content)}


def require_checksum(content: object) -> None:
    """Refuse content that has changed since ``with_checksum``; content of older versions, without checksum, passes."""
    if isinstance(content, Mapping) and _KEY in content and content[_KEY] != _digest(content):
        raise ValueError("its content does not match its checksum")


def _digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, serialized without its checksum and spaces and with sorted keys."""
    own = {key: value for key, value in content.items() if key != _KEY}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def json_value(content: bytes) -> Any:
    """Return the value of a JSON file of this package, verified against its checksum if it has one.

    Raises:
        ValueError: ``foreign_json_value`` refuses it, a number is not finite, or it does not match its checksum.
    """
    value = foreign_json_value(content, finite=True)
    require_checksum(value)
    return value


def foreign_json_value(content: bytes, *, finite: bool = False) -> Any:
    """Return the value of UTF-8 encoded JSON from any source; ``finite`` refuses NaN and infinite numbers.

    Raises:
        ValueError: It is not valid JSON, is nested too deeply, or contains an overlong number or a lone surrogate.
    """
    text = content.decode("utf-8")
    try:
        value = (_FINITE if finite else _ANY).decode(text)
    except RecursionError:
        raise ValueError(f"lists within lists, deeper than {_DEEPEST}") from None
    if text.count("[") + text.count("{") > _DEEPEST:
        _require_shallow(value)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be written or displayed
    return value


def read_json(
    path: str | Path,
    where: str = "",
    *,
    what: str = "cannot be read",
    remedy: str = "restore the file",
    error: type[UserError] = RunError,
) -> Any:
    """Return the value of a JSON file, verified against its checksum if it has one."""
    try:
        return json_value(read_regular(path, LARGEST))
    except (OSError, ValueError) as reason:
        raise error(f"{where or path}: {what}, got {_in_words(reason)}; {remedy}") from reason


def read_json_object(path: Path, where: str = "", *, remedy: str = "restore the file") -> dict[str, Any]:
    """Return the mapping in a JSON file, as ``read_json`` does; other values are refused."""
    value = read_json(path, where, remedy=remedy)
    if not isinstance(value, dict):
        raise RunError(f"{where or path}: cannot be read, got {value!r:.80}; {remedy}")
    return value


def typed(content: object, kind: type[T]) -> T:
    """Return plain values as the dataclass ``kind``; keys that are not fields of it are ignored.

    Numbers that JSON cannot represent may be strings: "nan", "inf", "-inf".

    Raises:
        ValueError: A field is missing or has the wrong type; the message is one line about the first such field.
    """
    from pydantic import ValidationError

    try:
        adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # mypy does not consider type[T] hashable
        made = adapter.validate_python(content)
    except ValidationError as error:
        problem = error.errors()[0]
        if own := problem.get("ctx", {}).get("error"):  # raised by the dataclass itself
            raise ValueError(str(own)) from error
        got = "nothing" if problem["type"] == "missing" else repr(problem["input"])
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{place + ': ' if place else ''}{problem['msg']}, got {got:.80}") from error
    return made


def with_types(record: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a log whose fields are of the types that ``kinds`` gives to their names; others are kept.

    Raises:
        ValueError: A field has another type and cannot be read as this one, as "8" can as a number.
    """
    return {name: typed(value, kinds[name]) if name in kinds else value for name, value in record.items()}


def read_typed(
    path: Path, kind: type[T], where: str = "", *, what: str = "cannot be read", remedy: str = "restore the file"
) -> T:
    """Return the content of a JSON file as ``kind``; arguments and errors as in ``read_json``."""
    content = read_json(path, where, what=what, remedy=remedy)
    try:
        return typed(content, kind)
    except ValueError as error:
        raise RunError(f"{where or path}: {what}, got {error}; {remedy}") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def json_lines(content: bytes) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number of each line, starting at 1, and its mapping; None if the line is not a JSON mapping."""
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            value = foreign_json_value(line)
        except ValueError:
            value = None
        yield number, value if isinstance(value, dict) else None


def lines_left_out(where: str, numbers: list[int]) -> str:
    """Return the message about lines of a log that cannot be read and are skipped."""
    shown = ", ".join(map(str, numbers[:5])) + (" ..." if len(numbers) > 5 else "")
    return f"{where}: {len(numbers)} of its lines cannot be read and are left out: {shown}"


def _finite_number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"a number that is not finite, {text:.20}")
    return value


def _whole_number(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER + 1:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


_ANY = json.JSONDecoder(parse_int=_whole_number)
_FINITE = json.JSONDecoder(parse_int=_whole_number, parse_float=_finite_number, parse_constant=_finite_number)


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
        return f"byte {reason.object[reason.start]:#04x}, which is not UTF-8"
    if isinstance(reason, UnicodeEncodeError):
        return "half a character"
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
