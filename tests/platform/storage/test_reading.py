"""JSON files of ours: checksums, values and dataclasses, or one sentence with the path, what is wrong, the way out."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ebclab.errors import DataError, RunError
from ebclab.storage.reading import (
    LARGEST,
    foreign_json_value,
    json_lines,
    json_value,
    lines_left_out,
    read_json,
    read_json_object,
    require_checksum,
    typed,
    with_checksum,
)

VALUES: list[Any] = [None, True, 0, -1, 2**64 - 1, 0.1, 1e300, 5e-324, 1 / 3, "", "größer", "\U0001f600", []]
VALUES += [{"a": [{"b": 1}]}, [{"a": [1]}] * 5000, json.loads("[" * 50 + "]" * 50)]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_values_come_back(tmp_path: Path, value: Any) -> None:
    (tmp_path / "file").write_text(json.dumps(value))
    assert read_json(tmp_path / "file") == value
    assert json_value(json.dumps(value, ensure_ascii=False).encode()) == value


BAD = {
    "empty": (b"", "Expecting value"),
    "cut off": (b'{"a": 1', "Expecting"),
    "two values": (b"1 2", "Extra data"),
    "not UTF-8": (b'"\xff"', "byte 0xff, which is not UTF-8"),
    "deep": (b"[" * 60 + b"]" * 60, "lists within lists, deeper than 50"),
    "very deep": (b"[" * 100_000 + b"]" * 100_000, "lists within lists, deeper than 50"),
    "deep mappings": (b'{"a":' * 60 + b"1" + b"}" * 60, "lists within lists, deeper than 50"),
    "long number": (b"1" * 30, "a number of 30 digits"),
    "endless number": (b"1" * 5000, "a number of 5000 digits"),
    "no number": (b'{"a": NaN}', "a number that is not finite, NaN"),
    "too large": (b"-1e999", "a number that is not finite, -1e999"),
    "too long": (b"1" * 400 + b".5", "a number that is not finite, 11111111111111111111"),
    "half a character": (rb'"\ud800"', "half a character"),
    "half a character in a key": (rb'{"\udc00": 1}', "half a character"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_json_is_one_sentence(tmp_path: Path, name: str) -> None:
    content, said = BAD[name]
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(RunError) as raised:
        read_json(path, remedy="delete it")
    text = str(raised.value)
    assert text.startswith(f"{path}: cannot be read, got ")
    assert said in text
    assert text.endswith("; delete it")
    assert "\n" not in text
    with pytest.raises(ValueError, match=r"."):
        json_value(content)


def test_a_float_of_many_digits_is_a_number() -> None:
    assert json_value(b"0.3333333333333333333333333333333333333333") == 1 / 3


def test_only_files_of_a_size_that_ours_have_are_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGEST + 1)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, said in (
        ("large", f"got {LARGEST + 1:,} bytes, more than the {LARGEST:,}"),
        ("pipe", "got a pipe or a device"),
        ("zero", "got a pipe or a device"),
        ("none", "got No such file"),
        (".", "got Is a directory"),
    ):
        with pytest.raises(DataError, match=f"^the file: cannot be read, {said}"):
            read_json(tmp_path / name, "the file", error=DataError)


@pytest.mark.parametrize("value", [None, 3, "a", [], [{}]])
def test_what_is_no_mapping_is_refused_where_one_is_needed(tmp_path: Path, value: Any) -> None:
    (tmp_path / "file").write_text(json.dumps(value))
    with pytest.raises(RunError, match=r"file: cannot be read, got .*; restore the file"):
        read_json_object(tmp_path / "file")


def test_lines_that_are_no_mappings_are_none_and_numbered() -> None:
    content = b'{"a": 1}\n\n[1]\n{"b": \n' + b"[" * 100_000 + b'\n\xff\n{"c": 2}'
    assert list(json_lines(content)) == [
        (1, {"a": 1}),
        (2, None),
        (3, None),
        (4, None),
        (5, None),
        (6, None),
        (7, {"c": 2}),
    ]


def test_the_sentence_names_the_first_five_lines() -> None:
    assert lines_left_out("log", [3, 7]) == "log: 2 of its lines cannot be read and are left out: 3, 7"
    assert lines_left_out("log", list(range(1, 9))).endswith(
        "8 of its lines cannot be read and are left out: 1, 2, 3, 4, 5 ..."
    )


@pytest.mark.parametrize("read", [read_json, read_json_object])
def test_who_reads_a_file_with_a_checksum_need_not_think_of_it(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path, content = tmp_path / "a.json", with_checksum({"a": 1, "b": [0.5]})
    path.write_text(json.dumps(content))
    assert read(path) == content
    path.write_text(json.dumps(content | {"a": 2}))
    with pytest.raises(RunError, match=r"a\.json: cannot be read, got its content does not match its checksum"):
        read(path)


def test_files_of_others_and_lines_of_logs_carry_no_checksum_of_ours() -> None:
    line = b'{"digest": "of something else"}'
    assert foreign_json_value(line) == {"digest": "of something else"}
    assert [value for _, value in json_lines(line)] == [{"digest": "of something else"}]
    with pytest.raises(ValueError, match="checksum"):
        json_value(line)


def test_the_checksum_is_the_sha256_of_the_sorted_text_without_spaces() -> None:
    content = {"b": (1, 2.5), "a": {"x": None}}
    text = b'{"a":{"x":null},"b":[1,2.5]}'
    assert with_checksum(content) == content | {"digest": hashlib.sha256(text).hexdigest()}


@pytest.mark.parametrize("content", [{}, {"a": [1, 0.1, "\u00e9", None, True]}, {"digest": "of before"}])
def test_what_was_written_and_read_again_passes_in_any_order_of_its_keys(content: dict[str, object]) -> None:
    read = json.loads(json.dumps(with_checksum(content), indent=2))
    require_checksum(read)
    require_checksum(dict(reversed(read.items())))


@pytest.mark.parametrize("change", [{"a": 2}, {"a": 1.0}, {"b": None}, {"digest": ""}, {"digest": None}])
def test_what_was_changed_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="its content does not match its checksum"):
        require_checksum(with_checksum({"a": 1}) | change)


@pytest.mark.parametrize("content", [{"a": 1}, {}, [1], None, "digest"])
def test_content_without_a_checksum_is_older_and_passes(content: object) -> None:
    require_checksum(content)


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
