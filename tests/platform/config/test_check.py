import math
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import pytest

from ebclab.config.check import Problems, check_section, shown, value_problem
from ebclab.config.experiment import settings_of
from energy_contrast.settings import setting

COUNT = setting(1, "Count.", minimum=1, maximum=9, unit="images")
SHARE = setting(0.5, "Share.", above=0.0, below=1.0)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (float, 1),
        (int, 3),
        (bool, False),
        (str, "x"),
        (str | None, None),
        (tuple[int, int], [1, 2]),
        (tuple[int, ...], []),
        (float | None, 2),
    ],
)
def test_values_of_the_right_type_pass(hint, value):
    assert value_problem(value, setting(None, "Anything."), hint) is None


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (float, "0.5", "got '0.5'; must be a number"),
        (float, True, "got true; must be a number"),
        (float, None, "got null; must be a number"),
        (int, True, "got true; must be a whole number"),
        (int, 2.0, "got 2.0; must be a whole number"),
        (int, "2", "got '2'; must be a whole number"),
        (bool, 1, "got 1; must be true or false"),
        (bool, "yes", "got 'yes'; must be true or false"),
        (str, 3, "got 3; must be text"),
        (str | None, 3, "got 3; must be text or null"),
        (tuple[int, int], [1], "got [1]; must be a list (2 of them, each a whole number)"),
        (tuple[float, ...], [1, "x"], "got [1, 'x']; must be a list (each a number)"),
        (Literal["a", "b"] | None, 3, "got 3; must be one of a, b or null"),
        (int, {"x": 1}, "got {'x': 1}; must be a whole number"),
        (int, {date(2020, 1, 1): 1}, "got {datetime.date(2020, 1, 1): 1}; must be a whole number"),
    ],
)
def test_values_of_another_type_are_refused(hint, value, expected):
    assert value_problem(value, setting(None, "Anything."), hint) == f"wrong type, {expected}"


def test_inclusive_bounds_are_in_range_and_what_is_outside_is_refused():
    assert [value_problem(value, COUNT, int) for value in (1, 9)] == [None, None]
    for value in (0, 10):
        expected = f"out of range, got {value}; must be a whole number, at least 1, at most 9 (unit: images)"
        assert value_problem(value, COUNT, int) == expected


@pytest.mark.parametrize("value", [0, 1, -1, 2, float("nan"), float("inf")])
def test_exclusive_bounds_are_out_of_range(value):
    assert value_problem(value, SHARE, float) == f"out of range, got {value}; must be a number, above 0, below 1"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_must_be_finite_where_no_range_is_stated(value):
    assert value_problem(value, setting(0.0, "Anything."), float) == f"out of range, got {value}; must be a number"


@pytest.mark.parametrize("value", [1e31, -1e31, 1e300])
def test_what_float32_could_not_multiply_is_refused(value):
    number = setting(0.0, "Anything.")
    assert value_problem(value, number, float) == (
        f"too large to compute with in float32, got {value}; must be a number"
    )
    assert value_problem(math.copysign(1e30, value), number, float) is None


def test_bounds_hold_for_every_number_of_a_list():
    field = setting((0.0, 1.0), "Shares.", minimum=0.0)
    assert value_problem([0.5, -1], field, tuple[float, float]) == (
        "out of range, got [0.5, -1]; must be a list (2 of them, each a number), at least 0"
    )


def test_a_wrong_choice_gets_the_nearest_and_all():
    field, hint = setting("cosine", "Schedule."), Literal["cosine", "constant"]
    assert value_problem("cosin", field, hint) == (
        "no such choice, got 'cosin'; did you mean cosine? Known: cosine, constant"
    )
    assert value_problem(3, field, hint) == "wrong type, got 3; must be one of cosine, constant"


def test_long_values_are_shortened():
    text = shown("x" * 200)
    assert len(text) == 80
    assert text.endswith("...")


@dataclass(frozen=True)
class Pair:
    low: float = setting(1.0, "Low.", minimum=0.0)
    high: float = setting(2.0, "High.", minimum=0.0)

    def problems(self) -> list[str]:
        return ["low: must not exceed high"] if self.low > self.high else []


def check(given: dict[str, Any]) -> tuple[Pair, Problems]:
    problems = Problems()
    return check_section("pair", Pair, given, lambda name: f"pair.{name}: unknown", problems), problems


def test_right_values_make_the_config():
    config, problems = check({"low": 0, "high": 5})
    assert config == Pair(0.0, 5.0)
    assert type(config.low) is float
    assert problems.lines == []


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"low": 3}, "pair.low: must not exceed high"),
        ({"low": 3, "high": "4"}, "pair.high: wrong type, got '4'; must be a number, at least 0"),  # not by a default
    ],
)
def test_rules_across_settings_are_checked_when_both_are_right(given, line):
    assert check(given)[1].lines == [line]


def test_unknown_names_and_wrong_values_are_reported_in_the_order_written():
    _, problems = check({"middle": 1, "low": -1, "top": 2})
    assert [line.split(":")[0] for line in problems.lines] == ["pair.middle", "pair.low", "pair.top"]


def test_settings_of_lists_every_field():
    assert list(settings_of(Pair)) == ["low", "high"]
