"""Renders a table as CSV."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from ebclab.document.document import RichText, Table
from ebclab.formatting import visible

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
    return visible(f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text)
