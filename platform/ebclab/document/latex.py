"""Writes the tables of a document for a paper in LaTeX, as the button below a table of a page does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from ebclab.document.document import Block, Document, Folded, Table, one_line
from ebclab.formatting import without_credentials

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
