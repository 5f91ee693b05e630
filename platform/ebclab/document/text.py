"""Renders a document as text: Markdown, CSV, lines of a terminal, and tables in LaTeX; plots are on the page alone."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from ebclab.document.document import (
    Block,
    Command,
    Document,
    Facts,
    Folded,
    Items,
    Remark,
    RichText,
    Table,
    Tiles,
    one_line,
)
from ebclab.formatting import in_cell, presentable, terminal_columns, without_credentials
from ebclab.terminal import console, say


def as_markdown(document: Document) -> str:
    """Return a document as Markdown; text in it is escaped, so that it is shown literally."""
    parts = []
    for section in document.sections:
        body = list(_blocks(section.blocks))
        if body or section.is_head:
            parts += [f"{'#' if section.is_head else '##'} {escape_markdown(section.title)}", *body]
    return "\n\n".join([*parts, escape_markdown(document.files)]) + "\n"


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Table():
                yield from ([f"### {escape_markdown(block.title)}"] if block.title else [])
                yield table_as_markdown(block)
                yield from ([escape_markdown(block.note)] if block.note else [])
            case Facts():
                yield "\n".join(
                    f"- **{escape_markdown(name)}:** {escape_markdown(one_line(v))}" for name, v in block.rows
                )
            case Tiles():
                yield "\n".join(
                    f"- **{escape_markdown(number)}** {escape_markdown(what)}" for number, what in block.numbers
                )
            case Remark():
                start = "**Warning:** " if block.look == "warning" else ""
                yield start + escape_markdown(block.text)
            case Items():
                yield from ([f"### {escape_markdown(block.title)}"] if block.title else [])
                yield bullets(block.lines, is_ordered=block.is_ordered)
            case Command():
                yield from ([f"{escape_markdown(block.title)}:"] if block.title else [])
                yield fenced(block.text, block.language)
            case Folded():
                inner = list(_blocks(block.blocks))
                yield from [f"### {escape_markdown(block.title)}", *inner] if inner else []


def table_as_markdown(table: Table) -> str:
    """Return a table as Markdown, without its title and note; columns that share a heading become rows."""
    shown = table.unfolded()
    align = ["---:" if is_number else "---" for is_number in shown.numeric_columns]
    heads, *rows = [[escape_markdown(one_line(cell)) for cell in row] for row in (shown.columns, *shown.rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, align, *rows))


def bullets(lines: Iterable[str], *, is_ordered: bool = False) -> str:
    """Return a list as Markdown."""
    return "\n".join(f"{f'{n}.' if is_ordered else '-'} {escape_markdown(line)}" for n, line in enumerate(lines, 1))


def fenced(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any run of backticks in ``text``."""
    text = presentable(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def escape_markdown(text: str) -> str:
    """Return ``text`` on one line, escaped so that Markdown shows it literally: no markup, HTML or formula."""
    line = presentable(" ".join(text.split()))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*~$\[\]|]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", line)  # within words, _ is only itself
    return re.sub(r"^(\d*)([-+#.)=])(?=[-+#=\s]|$)", r"\1\\\2", line)  # what would start a list or a heading


_FORMULA = re.compile(r"[\t\r]|[\s'\"]*[=+\-@\u2212\uFE62\uFE63\uFE66\uFE6B\uFF0B\uFF0D\uFF1D\uFF20]")
"""How a cell begins that a spreadsheet computes; wide and small forms of the four characters are taken for them."""

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)


def as_csv(table: Table) -> str:
    """Return a table as CSV; text that a spreadsheet would compute, and that is not a number, follows an apostrophe."""
    heads = [f"{head.above}: {head.text}" if head.above else head.text for head in table.heads]
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([_csv_cell(cell) for cell in row] for row in (heads, *table.rows))
    return file.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, RichText):
        value = value.line if value.value is None else value.value
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return presentable(f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text)


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


_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "<": "$<$", ">": "$>$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"},
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}
_MINUS = re.compile(r"(?:(?<=[\s(])|^)-(?=\d)")


def as_latex(document: Document) -> str:
    """Return the tables that have rows, each below a comment with its headings; empty if there is none."""
    parts = []
    for section in document.sections:
        for table in _tables(section.blocks):
            name = " / ".join(" ".join(title.split()) for title in (section.title, table.title) if title)
            parts.append(f"% {without_credentials(name)}\n{table_as_latex(table)}")
    return "\n".join(["% needs \\usepackage{booktabs}\n", *parts]) if parts else ""


def _tables(blocks: Iterable[Block]) -> Iterator[Table]:
    for block in blocks:
        if isinstance(block, Folded):
            yield from _tables(block.blocks)
        elif isinstance(block, Table) and block.rows:
            yield block


def table_as_latex(table: Table) -> str:
    """Return a table with the rules of booktabs; headings over several columns are in a line of their own."""
    above = [(name, len(list(heads))) for name, heads in groupby(head.above for head in table.heads)]
    lines = [[rf"\multicolumn{{{wide}}}{{c}}{{{escaped(name)}}}" if name else "&" * (wide - 1) for name, wide in above]]
    lines = lines if any(name for name, _ in above) else []
    lines.append([escaped(head.text) for head in table.heads])
    rows = [[escaped(one_line(cell)) for cell in row] for row in table.rows]
    shown = [*map(_line, lines), r"\midrule", *map(_line, rows)]
    align = "".join("r" if is_number else "l" for is_number in table.numeric_columns)
    return "\n".join([rf"\begin{{tabular}}{{{align}}}", r"\toprule", *shown, r"\bottomrule", r"\end{tabular}", ""])


def _line(cells: list[str]) -> str:
    row = " & ".join(cells) + r" \\"
    return "{}" + row if row.lstrip()[:1] in ("[", "*") else row  # else an option of the command before it


def escaped(text: str) -> str:
    """Return text that LaTeX shows literally, in one line; a hyphen before a number becomes a minus sign."""
    line = _MINUS.sub("−", " ".join(without_credentials(text).split()))
    return "".join(_SIGNS.get(sign, sign) for sign in line if sign.isprintable())
