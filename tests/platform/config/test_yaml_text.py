import os
import time
from pathlib import Path

import pytest

from ebclab.config.yaml_text import dump_yaml, from_yaml, load_yaml_file, mapping_from_yaml
from ebclab.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("5E4", 5e4), ("-1e+3", -1e3), (".5e1", 5.0), ("2.e2", 200.0), ("1.5e-3", 1.5e-3), ("12", 12)],
)
def test_numbers_with_an_exponent_are_numbers(text, value):
    read = from_yaml(text, "here")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", ["e4", "1e", "1e-4x", "v1e4", "'1e-4'"])
def test_text_that_only_resembles_a_number_stays_text(text):
    assert from_yaml(text, "here") == text.strip("'")


@pytest.mark.parametrize(
    ("text", "value"),
    [("010", 8), ("-0_17", -15), ("1:30", 90), ("1:30.5", 90.5)],
    ids=["010", "-0_17", "1_30", "1_30.5"],
)
def test_numbers_that_yaml_reads_otherwise_than_people_are_refused(text, value):
    with pytest.raises(ConfigError, match=f"not valid YAML, {text} is {value} in YAML; write that, or quote it"):
        from_yaml(f"key: {text}", "here")
    assert from_yaml(f"key: '{text}'", "here") == {"key": text}
    assert from_yaml(f"key: {value}", "here") == {"key": value}


@pytest.mark.parametrize(
    "value", ["1e-4", "0.5", "true", "null", "", "a: b", "é", "[a\x85]b", [1, 2.5, "x"], None, 1e-6, 1 / 3]
)
def test_what_is_written_is_read_back(value):
    assert from_yaml(dump_yaml({"key": value}), "here") == {"key": value}


def test_a_list_is_written_on_one_line():
    assert dump_yaml({"sizes": [1, 2]}) == "sizes: [1, 2]\n"


def test_an_empty_text_has_no_settings():
    assert mapping_from_yaml("# nothing yet\n", "run.yaml") == {}


@pytest.mark.parametrize(("text", "shown"), [("- 1", r"\[1\]"), ("word " * 800, "'word word .*")])
def test_what_is_no_settings_is_shown_in_part(text, shown):
    with pytest.raises(ConfigError, match=rf"^run\.yaml: no settings, got {shown}; write `section:`") as caught:
        mapping_from_yaml(text, "run.yaml")
    assert len(str(caught.value)) < 200


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        load_yaml_file(tmp_path / "none.yaml")
    expected = "cannot be read, got No such file or directory; give the path of a YAML file"
    assert caught.value.problems == [f"{tmp_path / 'none.yaml'}: {expected}"]


def test_a_file_that_is_not_text_is_named(tmp_path: Path):
    (tmp_path / "weights.pt").write_bytes(b"ab\xff")
    with pytest.raises(ConfigError, match="not text, got byte 0xff; give a YAML file"):
        load_yaml_file(tmp_path / "weights.pt")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "training:\n  epochs: 1\n  epochs: 2\n",
            "run.yaml, line 3, column 3: not valid YAML, the key epochs appears twice",
        ),
        ("a: 1\n  b: 2", "run.yaml, line 2, column 4: not valid YAML, mapping values are not allowed"),
        ("a: \x00", "run.yaml: not valid YAML, unacceptable character"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("at: 2020-13-45", "line 1, column 5: not valid YAML, no timestamp, got 2020-13-45"),
        ("at: !!int x", "no int, got x"),
        ("at: !!int ''", "no int, got "),
        ("at: !!bool x", "no bool, got x"),
        ("at: !!timestamp x", "no timestamp, got x"),
        ("at: " + "1" * 100, "a number of too many digits"),
        ("at: 0x" + "f" * 4000, "a number of too many digits"),
        ("at: " + "1" * 100_000 + "x", "longer than 4,096 characters, got 100,001, '1111"),
        ("at: !!int 1" + ":1" * 200_000, "longer than 4,096 characters, got 400,001, '1:1:"),
        ("at: !" + "a" * 5000 + " x", "could not determine a constructor for the tag '!aaaa"),
        ("at: *" + "a" * 5000, "found undefined alias 'aaaa"),
        (f"{'k' * 5000}: 1", "longer than 4,096 characters, got 5,000, 'kkkk"),
        (f"'{'k' * 500}': 1\n'{'k' * 500}': 1", f"the key {'k' * 77}... appears twice"),
        ('at: "\\ud800"', "half a character"),
        ("[" * 100, "not valid YAML, "),
        ("[" * 100_000, "not valid YAML, "),
        ("[" * 60 + "]" * 60, "lists within lists, deeper than 50"),
        ("a: &a [*a]", "a value that holds itself"),
        (BOMB, "more than 100,000 values"),
        ("a: &a {x: 1}\nb: {<<: 7}", "expected a mapping"),
    ],
    ids=lambda text: text[:20],
)
def test_values_that_are_none_and_bombs_are_refused_at_once(text, said):
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        from_yaml(text, "run.yaml")
    assert time.process_time() - started < 5
    assert said in str(caught.value)
    assert str(caught.value).startswith("run.yaml")
    assert len(str(caught.value)) < 350


def test_an_alias_stands_for_the_same_value():
    assert from_yaml("a: &a [1, 2]\nb: *a\nc: {<<: &m {x: 1}}\n", "here") == {"a": [1, 2], "b": [1, 2], "c": {"x": 1}}


def test_only_files_of_a_size_that_settings_have_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "large.yaml").write_bytes(b" " * ((1 << 20) + 1))
    for name, said in (("pipe", "a pipe or a device"), ("zero", "a pipe or a device"), ("large", "1,048,577 bytes")):
        with pytest.raises(ConfigError, match=f"{name}.yaml: cannot be read, got {said}"):
            load_yaml_file(tmp_path / f"{name}.yaml")
