"""Converts plain JSON values to dataclasses; every field and its type are validated."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ebclab.errors import RunError
from ebclab.storage.reading import read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


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
