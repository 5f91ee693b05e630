"""Renders a document as Markdown: all its text and tables; plots and pictures are on the page alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ebclab.document.document import (
    Block,
    Command,
    Document,
    Facts,
    Folded,
    Items,
    Remark,
    Table,
    Tiles,
    one_line,
)
from ebclab.formatting import visible


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
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def escape_markdown(text: str) -> str:
    """Return ``text`` on one line, escaped so that Markdown shows it literally: no markup, HTML or formula."""
    line = visible(" ".join(text.split()))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*~$\[\]|]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", line)  # within words, _ is only itself
    return re.sub(r"^(\d*)([-+#.)=])(?=[-+#=\s]|$)", r"\1\\\2", line)  # what would start a list or a heading
