"""Renders a table as CSV."""

from __future__ import annotations

from ebclab.document.document import CellValue, RichText, Table
from ebclab.formatting import csv_table


def as_csv(table: Table) -> str:
    """Return a table as CSV: values where cells have one, else their text, none of which a spreadsheet computes."""
    heads = [f"{head.above}: {head.text}" if head.above else head.text for head in table.heads]
    return csv_table([heads, *([_value(cell) for cell in row] for row in table.rows)])


def _value(cell: CellValue) -> str | float | None:
    return cell if not isinstance(cell, RichText) else cell.line if cell.value is None else cell.value
