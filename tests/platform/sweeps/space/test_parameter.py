import math
from collections import Counter

import pytest

from ebclab.sweeps.space.parameter import Parameter, parse_parameter


def parameter(**given) -> Parameter:
    found, problems = parse_parameter("a.b", given)
    assert problems == []
    assert found is not None
    return found


def test_half_of_a_uniform_range_lies_below_its_mean_and_of_a_log_range_below_its_geometric_mean():
    assert parameter(uniform=[1, 4]).at(0.5) == 2.5
    assert parameter(loguniform=[1, 4]).at(0.5) == 2.0
    assert parameter(loguniform=[1e-3, 1e-1]).at(0.5) == 0.01


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize(
    "given",
    [{"uniform": [0.1, 0.3]}, {"loguniform": [3e-5, 0.7]}, {"int": [2, 9]}, {"int": [2, 9], "log": True}],
)
def test_the_shares_0_and_1_are_the_ends_of_a_range(given, share):
    one = parameter(**given)
    assert one.at(share) == one.ends[int(share)]


@pytest.mark.parametrize("given", [{"int": [3, 6]}, {"quantised": [0.0, 0.3, 0.1]}, {"choice": ["a", "b", "c", "d"]}])
def test_equal_shares_of_the_interval_go_to_each_value(given):
    counts = Counter(parameter(**given).at((i + 0.5) / 1000) for i in range(1000))
    assert list(counts.values()) == [250] * 4


def test_whole_numbers_in_log_scale_get_shares_by_their_powers():
    # k gets log((k + 1) / k) / log(8): with [1, 7], 1 as much as 2 and 3 together, and as 4 to 7
    counts = Counter(parameter(int=[1, 7], log=True).at((i + 0.5) / 3000) for i in range(3000))
    assert [counts[k] for k in range(1, 8)] == [
        pytest.approx(1000 * math.log2((k + 1) / k), abs=1) for k in range(1, 8)
    ]


def test_a_grid_is_evenly_spread_in_the_measure_of_the_range():
    assert parameter(uniform=[0, 1]).grid == [0.0, 0.5, 1.0]
    assert parameter(loguniform=[1e-4, 1], points=5).grid == [1e-4, 1e-3, 1e-2, 0.1, 1.0]
    assert parameter(int=[1, 9]).grid == [1, 5, 9]
    assert parameter(int=[1, 2], points=9).grid == [1, 2]
    assert parameter(quantised=[64, 256, 64]).grid == [64, 128, 192, 256]
    assert parameter(choice=["x", "y"]).grid == ["x", "y"]


@pytest.mark.parametrize("given", [{"uniform": [0.1, 0.9]}, {"loguniform": [0.1, 0.9]}])
def test_a_value_beside_a_range_has_a_quarter_of_the_draws_and_the_range_the_rest(given):
    alone, beside = parameter(**given), parameter(**given, also=0)
    assert [beside.at(share) for share in (0.0, 0.1, 0.2499)] == [0.0] * 3
    assert [beside.at(0.25 + 0.75 * share) for share in (0.0, 0.3, 1.0)] == [alone.at(share) for share in (0, 0.3, 1)]
    assert all(beside.share_of(beside.at(share)) == pytest.approx(share) for share in (0.125, 0.25, 0.6, 1.0))
    assert all(alone.share_of(alone.at(share)) == pytest.approx(share) for share in (0.0, 0.6, 1.0))
    assert beside.grid == [0.0, *alone.grid]
    assert beside.ends == (0.0, 0.1, 0.9)
    assert beside.is_numeric


def test_quantised_numbers_are_those_a_person_would_write():
    assert parameter(quantised=[0.1, 0.7, 0.1]).levels == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def test_quantised_whole_numbers_stay_whole():
    assert all(isinstance(level, int) for level in parameter(quantised=[64, 256, 64]).levels)


@pytest.mark.parametrize(
    ("given", "inside", "outside"),
    [
        ({"uniform": [0.1, 0.3]}, [0.1, 0.2, 0.3], [0.0999, 0.3001, "x", True, math.nan]),
        ({"loguniform": [1e-10, 1]}, [1e-10, 0.5, 1], [0.0, 9.9e-11, 1.1]),
        ({"int": [1, 5]}, [1, 5], [0, 6, 2.5, True]),
        ({"quantised": [0.1, 0.7, 0.2]}, [0.1, 0.3, 0.1 + 0.2], [0.2, 0.9]),
        ({"choice": [1, "a", 0.5]}, [1, "a", 0.5], [True, "b", 2]),
        ({"uniform": [0.2, 0.9], "also": 0}, [0.0, 0.2, 0.9], [0.1, 1e-9, 1.0]),
        ({"loguniform": [0.1, 0.5], "also": 1}, [0.1, 0.5, 1.0], [0.9, 0.0]),
    ],
)
def test_what_is_in_a_range_is_found_and_what_is_not_is_none(given, inside, outside):
    one = parameter(**given)
    assert [one.find(value) for value in inside] == [pytest.approx(value) for value in inside]
    assert [one.find(value) for value in outside] == [None] * len(outside)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"uniform": [0, 1]}, "0 to 1"),
        ({"loguniform": [1e-4, 0.1]}, "0.0001 to 0.1, log scale"),
        ({"uniform": [0.05, 1], "times": "a.c"}, "0.05 to 1 times a.c"),
        ({"int": [1, 20]}, "1 to 20, whole numbers"),
        ({"int": [1, 20], "log": True}, "1 to 20, whole numbers, log scale"),
        ({"quantised": [0, 1, 0.1]}, "0 to 1, in steps of 0.1"),
        ({"uniform": [0.1, 0.9], "also": 0}, "0, or 0.1 to 0.9"),
        ({"choice": [64, 128, 256]}, "64, 128 or 256"),
        ({"choice": ["adam", "sgd"]}, "adam or sgd"),
        ({"choice": [True, False]}, "true or false"),
    ],
)
def test_a_range_in_words(given, words):
    assert parameter(**given).in_words() == words


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"uniform": [1, 1]}, "empty range, got [1, 1]; write the smaller number first, and another one after it"),
        ({"int": [5, 2]}, "empty range, got [5, 2]; write the smaller number first, and another one after it"),
        ({"loguniform": [0, 1]}, "a log range must not reach zero, got [0, 1]; start above 0, or write uniform"),
        ({"loguniform": [-1, 1]}, "a log range must not reach zero, got [-1, 1]; start above 0, or write uniform"),
        (
            {"int": [0, 9], "log": True},
            "a log range must not reach zero, got [0, 9]; start above 0, or write uniform",
        ),
        ({"uniform": [1]}, "uniform: needs 2 numbers, got [1]; write uniform: [low, high]"),
        ({"uniform": None}, "uniform: needs 2 numbers, got null; write uniform: [low, high]"),
        ({"uniform": [0, True]}, "uniform: needs 2 numbers, got [0, True]; write uniform: [low, high]"),
        ({"uniform": [0, math.inf]}, "uniform: needs 2 numbers, got [0, inf]; write uniform: [low, high]"),
        ({"quantised": [0, 1]}, "quantised: needs 3 numbers, got [0, 1]; write quantised: [low, high, step]"),
        ({"quantised": [0, 1, 0.3]}, "quantised: the step must divide the range, got 0.3 in a range of 1"),
        ({"quantised": [0, 1, 2]}, "quantised: the step must divide the range, got 2 in a range of 1"),
        ({"quantised": [0, 1, -1]}, "quantised: the step must be above 0, got -1"),
        (
            {"quantised": [0, 1, 1e-6]},
            "quantised: too many steps, got 1000000; write uniform, or at most 10000 steps",
        ),
        ({"int": [1, 2.5]}, "int: needs whole numbers, got [1, 2.5]; write uniform or quantised for fractions"),
        ({"choice": [1]}, "choice: nothing to choose, got [1]; list two values or more"),
        ({"choice": 3}, "choice: not a list, got 3; write choice: [a, b, ...]"),
        ({"choice": [1, 2, 1]}, "choice: a value appears twice, got 1; list it once"),
        ({"choice": [1, None]}, "choice: null cannot be searched; write a value"),
        (
            {"choice": ["a", "b"], "times": "a.c"},
            "times: needs numbers to multiply, got ['a', 'b']; leave times out",
        ),
        ({"uniform": [0, 1], "times": 3}, "times: not a setting, got 3; name another parameter"),
        ({"uniform": [0, 1], "points": 1}, "points: must be a whole number, at least 2, got 1"),
        (
            {"choice": [1, 2], "points": 2},
            "points: a grid takes every value of a choice and every step, got 2; leave points out",
        ),
        ({"uniform": [0, 1], "also": 0}, "also: must be outside the range, got 0; leave it out"),
        ({"uniform": [0, 1], "also": "off"}, "also: must be a number, got 'off'"),
        ({"int": [1, 2], "also": 0}, "also: is for uniform and loguniform, got 0; list it as a choice"),
        ({"choice": [1, 2], "also": 0}, "also: is for uniform and loguniform, got 0; list it as a choice"),
        ({"int": [1, 2], "log": 1}, "log: must be true or false, got 1"),
        ({"uniform": [1, 2], "log": True}, "log: is for whole numbers only, got true; write loguniform for others"),
        (
            {"unifrom": [0, 1]},
            "no such range or option, got unifrom; did you mean uniform? "
            "Known: uniform, loguniform, int, quantised, choice, times, points, log, also",
        ),
    ],
)
def test_a_malformed_range_is_refused_in_one_line(given, line):
    assert parse_parameter("a.b", given) == (None, [line])


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"uniform": [0, 1], "int": [0, 1]}, "must have one range, got uniform and int; write one of uniform: [low, "),
        ({"points": 3}, "must have one range, got none; write one of uniform: [low, high], "),
        ([0, 1], "no range, got [0, 1]; write {one of uniform: [low, high], "),
    ],
)
def test_what_is_not_one_range_is_refused_with_the_forms(given, start):
    _, problems = parse_parameter("a.b", given)
    assert problems[0].startswith(start)


def test_true_and_1_are_two_choices():
    assert parse_parameter("a.b", {"choice": [True, 1]})[1] == []
