"""Renders a reproduction as a self-contained HTML file."""

from __future__ import annotations

from itertools import groupby

from ebclab.reports.html import page_frame, templates
from ebclab.reproduce.answers import in_words
from ebclab.reproduce.table import ReproducedTable
from ebclab.reproduce.wording import (
    claims_asked,
    cost_in_words,
    published_in_words,
    shown_difference,
    shown_number,
    shown_ours,
    shown_published,
    unit_in_words,
)


def render_table_page(table: ReproducedTable) -> str:
    """Return a reproduction as HTML: one line per row of the study, three cells per column."""
    study = table.plan.study
    by_row = {
        name: {cell.column: cell for cell in cells} for name, cells in groupby(table.cells, lambda cell: cell.row)
    }
    rows = [(study.rows[name], [cells.get(column) for column in study.columns]) for name, cells in by_row.items()]
    return (
        templates("ebclab.reproduce")
        .get_template("table.html.j2")
        .render(
            table=table,
            study=study,
            rows=rows,
            cost=cost_in_words(table),
            published=published_in_words(table),
            asked=claims_asked(table),
            in_words=in_words,
            here={cell.column: cell.here for cell in table.cells},
            details=_details(table),
            shown_ours=shown_ours,
            shown_number=shown_number,
            shown_published=shown_published,
            shown_difference=shown_difference,
            unit=unit_in_words,
            **page_frame(drawn=False),
        )
    )


def _details(table: ReproducedTable) -> dict[str, str]:
    """Return how each column was measured, keyed by its title; taken from the first measured row of the column."""
    found: dict[str, str] = {}
    for cell in table.cells:
        if cell.detail:
            found.setdefault(table.plan.study.columns[cell.column].title, cell.detail)
    return found
