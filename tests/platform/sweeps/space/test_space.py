"""Ranges and spaces: what they hold, how they are drawn from, and every mistake in one line."""

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest

from ebclab.errors import ConfigError
from ebclab.sweeps.space import space as space_module
from ebclab.sweeps.space.space import Parameter, Space, load_space, parse_parameter, parse_space


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
    "given", [{"uniform": [0.1, 0.3]}, {"loguniform": [3e-5, 0.7]}, {"int": [2, 9]}, {"int": [2, 9], "log": True}]
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


@pytest.mark.parametrize(
    ("given", "value", "share"),
    [
        ({"int": [1, 7]}, 3, 2.5 / 7),
        ({"int": [1, 7], "log": True}, 3, math.log(3.5) / math.log(8)),
        ({"quantised": [0.0, 0.3, 0.1]}, 0.2, 0.625),
        ({"choice": ["a", "b", "c", "d"]}, "a", 0.125),
    ],
)
def test_a_whole_number_or_a_level_lies_in_the_middle_of_its_shares(given, value, share):
    one = parameter(**given)
    assert one.share_of(value) == pytest.approx(share)
    assert one.at(one.share_of(value)) == value


def test_quantised_numbers_are_those_a_person_would_write_and_whole_ones_stay_whole():
    assert parameter(quantised=[0.1, 0.7, 0.1]).levels == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    assert all(isinstance(level, int) for level in parameter(quantised=[64, 256, 64]).levels)


@pytest.mark.parametrize(
    ("given", "inside", "outside"),
    [
        ({"uniform": [0.1, 0.3]}, [0.1, 0.2, 0.3], [0.0999, 0.3001, "x", True, math.nan]),
        ({"loguniform": [1e-10, 1]}, [1e-10, 0.5, 1], [0.0, 9.9e-11, 1.1]),
        ({"int": [1, 5]}, [1, 5], [0, 6, 2.5, True]),
        ({"quantised": [0.1, 0.7, 0.2]}, [0.1, 0.3, 0.1 + 0.2], [0.2, 0.9]),
        ({"choice": [1, "a", 0.5]}, [1, "a", 0.5], [True, "b", 2]),
        ({"choice": [True, 1]}, [True, 1], [2]),
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
        ({"int": [0, 9], "log": True}, "a log range must not reach zero, got [0, 9]; start above 0, or write uniform"),
        ({"uniform": [1]}, "uniform: needs 2 numbers, got [1]; write uniform: [low, high]"),
        ({"uniform": None}, "uniform: needs 2 numbers, got null; write uniform: [low, high]"),
        ({"uniform": [0, True]}, "uniform: needs 2 numbers, got [0, True]; write uniform: [low, high]"),
        ({"uniform": [0, math.inf]}, "uniform: needs 2 numbers, got [0, inf]; write uniform: [low, high]"),
        ({"quantised": [0, 1]}, "quantised: needs 3 numbers, got [0, 1]; write quantised: [low, high, step]"),
        ({"quantised": [0, 1, 0.3]}, "quantised: the step must divide the range, got 0.3 in a range of 1"),
        ({"quantised": [0, 1, 2]}, "quantised: the step must divide the range, got 2 in a range of 1"),
        ({"quantised": [0, 1, -1]}, "quantised: the step must be above 0, got -1"),
        ({"quantised": [0, 1, 1e-6]}, "quantised: too many steps, got 1000000; write uniform, or at most 10000 steps"),
        ({"int": [1, 2.5]}, "int: needs whole numbers, got [1, 2.5]; write uniform or quantised for fractions"),
        ({"choice": [1]}, "choice: nothing to choose, got [1]; list two values or more"),
        ({"choice": 3}, "choice: not a list, got 3; write choice: [a, b, ...]"),
        ({"choice": [1, 2, 1]}, "choice: a value appears twice, got 1; list it once"),
        ({"choice": [1, None]}, "choice: null cannot be searched; write a value"),
        ({"choice": ["a", "b"], "times": "a.c"}, "times: needs numbers to multiply, got ['a', 'b']; leave times out"),
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


EVERY_KIND = {
    "parameters": {
        "a.derived": {"uniform": [0.05, 1.0], "times": "a.scale", "points": 2},
        "a.twice": {"choice": [0.5, 2], "times": "a.derived"},
        "a.scale": {"loguniform": [0.01, 0.2]},
        "a.count": {"int": [1, 20]},
        "a.size": {"int": [256, 65536], "log": True},
        "a.share": {"quantised": [0.1, 0.7, 0.2]},
        "a.word": {"choice": ["x", True, 3]},
        "a.target": {"uniform": [0.1, 0.9], "also": 0.0},
    }
}
POINT = {"a.derived": 0.2, "a.twice": 2, "a.scale": 0.05, "a.count": 7, "a.size": 4096, "a.share": 0.5}
POINT |= {"a.word": True, "a.target": 0.0}


@pytest.fixture
def space() -> Space:
    return parse_space(EVERY_KIND, "s.yaml")


def grid_of(space: Space) -> list[dict[str, object]]:
    return [space.grid_point(number) for number in range(space.grid_size)]


def test_a_derived_setting_is_its_factor_times_the_setting_it_names_and_whole_where_both_are(space):
    settings = space.settings(POINT)
    assert settings == {**POINT, "a.derived": 0.2 * 0.05, "a.twice": 2 * 0.2 * 0.05} | {
        "a.derived": 0.01,  # 0.2 * 0.05 is 0.010000000000000002 in binary
        "a.twice": 0.02,
    }
    assert list(settings) == list(POINT)
    space = parse_space({"parameters": {"a": {"choice": [1, 2], "times": "b"}, "b": {"int": [64, 128]}}}, "s")
    assert repr(space.settings({"a": 2, "b": 64})["a"]) == "128"


def test_the_point_of_settings_is_the_point_they_came_from(space):
    for point in itertools.chain([POINT], space.corners(), grid_of(space)):
        assert space.point_of(space.settings(point)) == point


@pytest.mark.parametrize(
    ("change", "is_inside"),
    [
        ({}, True),
        ({"b": 1}, True),  # a setting of no parameter
        ({"a.scale": 0.3}, False),
        ({"a.count": 2.5}, False),
        ({"a.share": 0.4}, False),
        ({"a.word": 1}, False),
        ({"a.target": 0.05}, False),
        ({"a.derived": 0.06}, False),  # 1.2 times the scale
        ({"a.scale": "x"}, False),
        ({"a.scale": 0.0}, False),
        *(({name: ...}, False) for name in POINT),  # missing
    ],
)
def test_settings_have_a_point_if_all_are_there_and_within_their_ranges(space, change, is_inside):
    settings = {**space.settings(POINT), **change}
    found = space.point_of({name: value for name, value in settings.items() if value is not ...})
    assert found == (POINT if is_inside else None)


def test_the_corners_are_all_ends_of_ranges_with_all_choices():
    space = parse_space({"parameters": {"a": {"uniform": [0, 1]}, "b": {"choice": ["x", "y", "z"]}}}, "s")
    corners = [(point["a"], point["b"]) for point in space.corners()]
    assert corners == [(0, "x"), (0, "y"), (0, "z"), (1, "x"), (1, "y"), (1, "z")]
    assert space.num_corners == 6


def test_the_grid_is_every_combination_and_the_last_parameter_changes_fastest(space):
    values = ([0.05, 1.0], [0.5, 2], [0.01, space.by_name["a.scale"].at(0.5), 0.2], [1, 11, 20])
    sizes = ([256, space.by_name["a.size"].at(0.5), 65536], [0.1, 0.3, 0.5, 0.7], ["x", True, 3], [0.0, 0.1, 0.5, 0.9])
    expected = [dict(zip(POINT, point, strict=True)) for point in itertools.product(*values, *sizes)]
    assert grid_of(space) == expected
    assert space.grid_size == len(expected) == 2 * 2 * 3 * 3 * 3 * 4 * 3 * 4


@pytest.mark.parametrize("number", [-1, 5184])
def test_a_place_outside_the_grid_is_an_index_error(space, number):
    with pytest.raises(IndexError, match="5184 points"):
        space.grid_point(number)


def test_a_space_survives_the_way_through_plain_values(space):
    assert parse_space(space.to_mapping(), "s.yaml") == space
    assert space.to_mapping()["parameters"]["a.derived"] == EVERY_KIND["parameters"]["a.derived"]


def test_leaving_a_parameter_out_takes_its_multiples_with_it(space):
    assert list(space.without({"a.derived"}).by_name) == [
        name for name in POINT if name not in ("a.derived", "a.twice")
    ]


ONE = {"uniform": [1, 2]}
EMPTY = "s.yaml: no parameters, got {}; write parameters: and a setting with its range"


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        *(
            ({"parameters": value}, [EMPTY.format(text)])
            for value, text in ((None, "null"), ({}, "{}"), ([], "[]"), (3, "3"))
        ),
        (
            {
                "parameter": {},
                "parameters": {"a": {"uniform": [1, 0]}, "b": {**ONE, "times": "c"}, "d": {**ONE, "times": "a"}},
            },
            [
                "s.yaml: no such entry, got parameter; write parameters: and the settings indented below it",
                "s.yaml, a: empty range, got [1, 0]; write the smaller number first, and another one after it",
                "s.yaml, b: times: no such parameter, got c; known: a, b, d",
            ],
        ),
        (
            {"parameters": {name: {**ONE, "times": other} for name, other in ("ca", "ba", "ab", "dd")}},
            [
                "s.yaml, a: times: a circle, got a -> b -> a; remove times from one of them",
                "s.yaml, d: times: a circle, got d -> d; remove times from one of them",
            ],
        ),
        (
            {"parameters": {"a": {**ONE, "times": "b"}, "b": {"choice": ["x", "y"]}}},
            ["s.yaml, a: times: must name a parameter with numbers, got b; leave times out"],
        ),
    ],
    ids=str,
)
def test_every_mistake_of_a_space_is_reported_at_once(given, problems):
    with pytest.raises(ConfigError) as caught:
        parse_space(given, "s.yaml")
    assert caught.value.problems == problems


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "alpha.yaml").write_text("parameters: {a: {uniform: [0, 1]}}")
    (tmp_path / "search_spaces" / "README.md").write_text("# no space")
    monkeypatch.setattr(space_module, "SHIPPED", tmp_path / "search_spaces")


@pytest.mark.usefixtures("shipped")
def test_without_a_name_the_space_of_the_method_is_taken():
    assert load_space(None, "alpha") == load_space("alpha", "beta")
    assert load_space(None, "alpha").where == "search space alpha"


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            None,
            "none is shipped for beta; name one that suits it, such as that of simclr (of a sweep --space simclr, of a "
            "comparison --space beta=simclr), or write your own. Shipped: alpha",
        ),
        ("alhpa", "no such file, got 'alhpa'; did you mean alpha? Known: alpha"),
        ("{}/digit.yaml", "no such file, got '{}/digit.yaml'; did you mean {}/digits.yaml?"),
    ],
)
def test_a_space_that_is_nowhere_gets_the_nearest_name(tmp_path: Path, name: str | None, problem: str):
    (tmp_path / "digits.yaml").write_text("parameters: {}")
    with pytest.raises(ConfigError) as caught:
        load_space(name and name.replace("{}", str(tmp_path)), "beta")
    assert caught.value.problems == [f"--space: {problem}".replace("{}", str(tmp_path))]


def test_a_users_file_is_read_and_named_in_messages(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("parameters:\n  a.b: {loguniform: [1e-4, 1]}\n")
    assert load_space(path, "simclr").to_mapping() == {"parameters": {"a.b": {"loguniform": [0.0001, 1.0]}}}
    path.write_text("parameters:\n  a.b: {loguniform: [0, 1]}\n")
    with pytest.raises(ConfigError) as caught:
        load_space(str(path), "simclr")
    assert caught.value.problems[0].startswith(f"{path}, a.b: a log range must not reach zero")
