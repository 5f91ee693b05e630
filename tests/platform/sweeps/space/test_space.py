import itertools
from pathlib import Path

import pytest

from ebclab.errors import ConfigError
from ebclab.sweeps.space import space as space_module
from ebclab.sweeps.space.space import Space, load_space, parse_space

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
POINT = {
    "a.derived": 0.2,
    "a.twice": 2,
    "a.scale": 0.05,
    "a.count": 7,
    "a.size": 4096,
    "a.share": 0.5,
    "a.word": True,
    "a.target": 0.0,
}


@pytest.fixture
def space() -> Space:
    return parse_space(EVERY_KIND, "s.yaml")


def grid_of(space: Space) -> list[dict[str, object]]:
    return [space.grid_point(number) for number in range(space.grid_size)]


def test_a_derived_setting_is_its_factor_times_the_setting_it_names(space):
    settings = space.settings(POINT)
    assert settings == {**POINT, "a.derived": 0.2 * 0.05, "a.twice": 2 * 0.2 * 0.05} | {
        "a.derived": 0.01,  # 0.2 * 0.05 is 0.010000000000000002 in binary
        "a.twice": 0.02,
    }
    assert list(settings) == list(POINT)


def test_whole_numbers_times_whole_numbers_stay_whole():
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
    monkeypatch.setattr(space_module, "files", lambda package: tmp_path)


@pytest.mark.usefixtures("shipped")
def test_without_a_name_the_space_of_the_method_is_taken():
    assert load_space(None, "alpha") == load_space("alpha", "beta")
    assert load_space(None, "alpha").where == "search space alpha"


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "none is shipped for beta; write your own. Shipped: alpha"),
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
