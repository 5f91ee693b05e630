"""Numbers and lines as people read them."""

import io
import tomllib
from pathlib import Path

import pytest

from ebclab.formatting import REQUIREMENTS, age, fitted, rate, size


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Unknown:
    """A stream of a window, which has what is needed to write alone: fastprogress#81, click#2555."""

    def write(self, text: str) -> int:
        return len(text)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("see `a b c d e` now", ["see", "`a b c d e`", "now"]),
        ("no:\n  one two three", ["no:", "  one two", "  three"]),
        ("/a/path-as/long-as-this one", ["/a/path-as/long-as-this", "one"]),
    ],
)
def test_lines_are_broken_between_words_and_commands_stay_whole(monkeypatch, text, lines):
    monkeypatch.setenv("COLUMNS", "10")
    assert fitted(text, Terminal()).split("\n") == lines
    assert fitted(text, io.StringIO()) == text
    assert fitted(text, Unknown()) == fitted(text, None) == text


@pytest.mark.parametrize("part", REQUIREMENTS)
def test_what_messages_say_to_install_is_what_the_package_asks_for(part: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = [line.partition(";")[0] for line in project["dependencies"] if line.startswith(part)]
    assert REQUIREMENTS[part].split() == project["optional-dependencies"].get(part, required)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        *zip(map(size, (0, 999, 1000, 52e3, 3.4e9)), ("0 B", "999 B", "1.0 kB", "52 kB", "3.4 GB"), strict=True),
        *zip(map(age, (5, 90, 7200, 200_000)), ("5 s", "2 min", "2 h", "2 d"), strict=True),
        *zip(map(rate, (1234.5, 9.96, 9.9, 0.432, 0)), ("1,234", "10", "9.9", "0.43", "0"), strict=True),
        (rate(1234.5, 1000.6), "1,234 +/- 1,001"),
        (rate(0.432, 0.05), "0.43 +/- 0.05"),
        (rate(154, 0.3), "154"),
        (rate(0.4), "0.4"),
    ],
)
def test_sizes_ages_and_rates_are_read_at_a_glance(said: str, expected: str) -> None:
    assert said == expected
