"""Formats the numbers of a reproduction as text, for the terminal, Markdown and the page."""

from __future__ import annotations

from ebclab.formatting import clock
from ebclab.reproduce.study import Unit
from ebclab.reproduce.table import ReproducedCell, ReproducedTable

NOT_RUN = "not run at this scale"


def shown_number(value: float | None, unit: Unit) -> str:
    """Return a number as text; empty if there is none."""
    if value is None:
        return ""
    return {"percent": f"{value:.1f}", "plain": f"{value:.3g}", "seconds": f"{value:.1f}"}[unit]


def shown_published(value: float | None, unit: Unit) -> str:
    """Return a published number as printed; percentages with one or two decimals."""
    if value is None or unit != "percent":
        return shown_number(value, unit)
    return f"{value:.2f}".removesuffix("0")


def shown_ours(cell: ReproducedCell, num_seeds: int) -> str:
    """Return our number with its interval, or a remark if there is none; runs that were lost are said.

    Args:
        cell: The cell.
        num_seeds: Number of seeds that were planned.
    """
    if cell.ours is None:
        return NOT_RUN if cell.not_run else "failed"
    text = shown_number(cell.ours, cell.unit)
    if cell.low is not None and cell.high is not None:
        text += f" [{shown_number(cell.low, cell.unit)}, {shown_number(cell.high, cell.unit)}]"
    return text if len(cell.seeds) == num_seeds else f"{text} ({len(cell.seeds)} of {num_seeds} seeds)"


def shown_difference(cell: ReproducedCell) -> str:
    """Return our number minus the published one, with its sign; empty if one is missing."""
    gap = cell.difference
    if gap is None:
        return ""
    return {"percent": f"{gap:+.1f}", "plain": f"{gap:+.3g}", "seconds": f"{gap:+.1f}"}[cell.unit]


def unit_in_words(unit: Unit) -> str:
    """Return the unit appended to a column's title; empty for plain numbers."""
    return {"percent": "%", "plain": "", "seconds": "s"}[unit]


def cost_in_words(table: ReproducedTable) -> str:
    """Return the actual and the estimated cost of the runs."""
    where = "" if table.expected.seconds is None else f" expected on {table.expected.device}"
    expected = f"{table.expected.in_words()}{where}"
    return f"{len(table.plan.runs)} runs, {clock(table.seconds)} of training; {expected}"
