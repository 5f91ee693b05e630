"""The table of ``ebclab runs list``: whole where it fits, narrower where it does not."""

from __future__ import annotations

from ebclab.cli.runs import _fitting_table
from ebclab.inventory.listing import Entry


def entry(name: str) -> Entry:
    return Entry(name, "flatclr", "digits", "2/2 epochs", "98.3%", "finished", 2_600_000, 30.0)


def test_columns_are_as_wide_as_their_widest_cell_on_the_screen() -> None:
    """Widths with the two spaces after each: 10 + 9 + 8 + 12 + 7 + 10 + 8 + 6 = 70; the first name has four cells."""
    assert _fitting_table([entry("ドア"), entry("abcdefgh")], 70) == [
        "name      method   data    done        score  state     size    age   ",
        "ドア      flatclr  digits  2/2 epochs  98.3%  finished  2.6 MB  30 s  ",
        "abcdefgh  flatclr  digits  2/2 epochs  98.3%  finished  2.6 MB  30 s  ",
    ]


def test_the_least_needed_columns_go_first() -> None:
    """Without method and data 53 remain, without the age 47."""
    found = {width: _fitting_table([entry("abcdefgh")], width)[0].split() for width in (69, 53, 52, 47)}
    assert found[69] == found[53] == ["name", "done", "score", "state", "size", "age"]
    assert found[52] == found[47] == ["name", "done", "score", "state", "size"]


def test_then_names_fold() -> None:
    assert _fitting_table([entry("abcdefgh"), entry("x")], 42) == [
        "nam  done        score  state     size    ",
        "e",
        "abc  2/2 epochs  98.3%  finished  2.6 MB  ",
        "def",
        "gh",
        "x    2/2 epochs  98.3%  finished  2.6 MB  ",
    ]
