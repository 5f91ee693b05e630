"""Plain values as dataclasses: what is taken, and one line about what is not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from ebclab.storage.typed_json import typed


@dataclass(frozen=True)
class Inner:
    number: int


@dataclass(frozen=True)
class Outer:
    inner: tuple[Inner, ...]
    share: float | None
    free: dict[str, Any]
    rest: str = "default"


def test_nested_dataclasses_are_made_and_unknown_keys_ignored() -> None:
    content = {"inner": [{"number": 1}, {"number": 2}], "share": 1, "free": {"a.b": [1, None]}, "weather": "fair"}
    assert typed(content, Outer) == Outer((Inner(1), Inner(2)), 1.0, {"a.b": [1, None]})


@pytest.mark.parametrize(("text", "number"), [("inf", math.inf), ("-inf", -math.inf)])
def test_numbers_that_json_does_not_have_may_be_text(text: str, number: float) -> None:
    assert typed({"inner": [], "share": text, "free": {}}, Outer).share == number
    nan = typed({"inner": [], "share": "nan", "free": {}}, Outer).share
    assert nan is not None
    assert math.isnan(nan)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"inner": [], "free": {}}, "share: Field required, got nothing"),
        ({"inner": [{"number": 1}, {"number": "x"}], "share": None, "free": {}}, r"inner\.1\.number: .*, got 'x'"),
        ([], r"^Input should be a dictionary .*, got \[\]"),
    ],
)
def test_the_first_wrong_field_is_named_with_what_was_there(content: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        typed(content, Outer)
