"""Prints blocks of a document to a terminal: tables drawn by rich, the rest as lines that fit its width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from ebclab.document.document import Block, Facts, Items, Remark, Table, one_line
from ebclab.formatting import in_cell, terminal_columns
from ebclab.terminal import console, say

_COPIED = ("next", "run", "sweep", "page")
"""Facts that are commands or paths, which are not wrapped so that they can be copied."""


def print_blocks(blocks: Iterable[Block]) -> None:
    """Print tables, facts, remarks and lists; blocks of other kinds are on the page alone."""
    for block in blocks:
        match block:
            case Table():
                _print_table(block)
            case Facts():
                print_facts({name: one_line(text) for name, text in block.rows})
            case Remark():
                _print_line(block.text)
            case Items():
                if block.title:
                    _print_line(block.title)
                for line in block.lines:
                    _print_line(f"- {in_cell(line)}")


def print_facts(facts: Mapping[str, str]) -> None:
    """Print names and facts in two columns, wrapped at the terminal's width except for commands and paths to copy."""
    width = max(map(len, facts))
    lines = textwrap.TextWrapper(terminal_columns(), break_long_words=False, break_on_hyphens=False)
    lines.subsequent_indent = " " * (width + 2)
    for key, value in facts.items():
        line = f"{key:>{width}}: {value}"
        say(line if key in _COPIED else lines.fill(line))


def _print_line(text: str) -> None:
    width = terminal_columns()
    say(textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _print_table(table: Table) -> None:
    from rich import box
    from rich import table as rich

    shown = table.unfolded()
    drawn = rich.Table(title=shown.title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for head, is_number in zip(shown.heads, shown.numeric_columns, strict=True):
        drawn.add_column(in_cell(head.text), justify="right" if is_number else "left", overflow="fold")
    for row in shown.rows:
        drawn.add_row(*(in_cell(one_line(cell)) for cell in row))
    console().print(drawn)
