"""Values of settings: right ones pass, and each wrong one is a sentence; sections of them are checked whole."""

import math
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import pytest

from ebclab.config.check import Problems, check_section, shown, value_problem
from energy_contrast.settings import setting

ANY = setting(None, "Anything.")
COUNT = setting(1, "Count.", minimum=1, maximum=9, unit="images")
SHARE = setting(0.5, "Share.", above=0.0, below=1.0)
SHARES = setting((0.0, 1.0), "Shares.", minimum=0.0)
SCHEDULE = Literal["cosine", "constant"]


@pytest.mark.parametrize(
    ("field", "hint", "values"),
    [
        (ANY, float, [1, 1e30, -1e30]),
        (ANY, int, [3]),
        (ANY, bool, [False]),
        (ANY, str | None, ["x", None]),
        (ANY, tuple[int, int], [[1, 2]]),
        (ANY, tuple[int, ...], [[]]),
        (ANY, float | None, [2]),
        (COUNT, int, [1, 9]),
    ],
)
def test_values_of_the_right_type_in_range_pass(field: Any, hint: Any, values: list[Any]) -> None:
    assert [value_problem(value, field, hint) for value in values] == [None] * len(values)


NOT_FINITE = (math.nan, math.inf, -math.inf)
TOO_LARGE = (1e31, -1e31, 1e300)
REFUSED = [
    (ANY, float, "0.5", "wrong type, got '0.5'; must be a number"),
    (ANY, float, True, "wrong type, got true; must be a number"),
    (ANY, int, True, "wrong type, got true; must be a whole number"),
    (ANY, int, 2.0, "wrong type, got 2.0; must be a whole number"),
    (ANY, bool, 1, "wrong type, got 1; must be true or false"),
    (ANY, str, 3, "wrong type, got 3; must be text"),
    (ANY, str | None, 3, "wrong type, got 3; must be text or null"),
    (ANY, tuple[int, int], [1], "wrong type, got [1]; must be a list (2 of them, each a whole number)"),
    (ANY, tuple[float, ...], [1, "x"], "wrong type, got [1, 'x']; must be a list (each a number)"),
    (ANY, SCHEDULE | None, 3, "wrong type, got 3; must be one of cosine, constant or null"),
    (ANY, SCHEDULE, "cosin", "no such choice, got 'cosin'; did you mean cosine? Known: cosine, constant"),
    (ANY, int, {"x": 1}, "wrong type, got {'x': 1}; must be a whole number"),
    (ANY, int, {date(2020, 1, 1): 1}, "wrong type, got {datetime.date(2020, 1, 1): 1}; must be a whole number"),
    (COUNT, int, 0, "out of range, got 0; must be a whole number, at least 1, at most 9 (unit: images)"),
    (COUNT, int, 10, "out of range, got 10; must be a whole number, at least 1, at most 9 (unit: images)"),
    *((SHARE, float, n, f"out of range, got {n}; must be a number, above 0, below 1") for n in (0, 1, -1, *NOT_FINITE)),
    *((ANY, float, n, f"out of range, got {n}; must be a number") for n in NOT_FINITE),
    *((ANY, float, n, f"too large to compute with in float32, got {n}; must be a number") for n in TOO_LARGE),
    (
        SHARES,
        tuple[float, float],
        [0.5, -1],
        "out of range, got [0.5, -1]; must be a list (2 of them, each a number), at least 0",
    ),
]


@pytest.mark.parametrize(("field", "hint", "value", "sentence"), REFUSED)
def test_each_wrong_value_is_a_sentence(field: Any, hint: Any, value: Any, sentence: str) -> None:
    assert value_problem(value, field, hint) == sentence


def test_long_values_are_shortened() -> None:
    text = shown("x" * 200)
    assert len(text) == 80
    assert text.endswith("...")


@dataclass(frozen=True)
class Pair:
    low: float = setting(1.0, "Low.", minimum=0.0)
    high: float = setting(2.0, "High.", minimum=0.0)

    def problems(self) -> list[str]:
        return ["low: must not exceed high"] if self.low > self.high else []


@pytest.mark.parametrize(
    ("given", "made", "lines"),
    [
        ({"low": 0, "high": 5}, Pair(0.0, 5.0), []),
        ({"low": 3}, Pair(3.0, 2.0), ["pair.low: must not exceed high"]),
        # a rule across settings waits until both are right
        ({"low": 3, "high": "4"}, Pair(3.0), ["pair.high: wrong type, got '4'; must be a number, at least 0"]),
        (
            {"middle": 1, "low": -1, "top": 2},
            Pair(),
            [
                "pair.middle: unknown",
                "pair.low: out of range, got -1; must be a number, at least 0",
                "pair.top: unknown",
            ],
        ),
    ],
)
def test_a_section_is_made_and_all_its_problems_are_told_in_order(given: Any, made: Pair, lines: list[str]) -> None:
    problems = Problems()
    config = check_section("pair", Pair, given, lambda name: f"pair.{name}: unknown", problems)
    assert (config, problems.lines) == (made, lines)
    assert type(config.low) is float
