"""Formats the numbers of a reproduction as text, for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Mapping

from ebclab.formatting import clock, count
from ebclab.reproduce.study import PublishedNumber, Unit
from ebclab.reproduce.table import NOT_REACHED, ReproducedCell, ReproducedTable

NOT_RUN = "not run at this scale"


def shown_number(value: float | None, unit: Unit) -> str:
    """Return a number as text; empty if there is none."""
    if value is None:
        return ""
    return f"{value:{_FORMATS[unit]}}"


_FORMATS: Mapping[Unit, str] = {"percent": ".1f", "plain": ".3g", "seconds": ".1f", "hours": ".2f"}


def shown_published(number: PublishedNumber | None, unit: Unit) -> str:
    """Return a published number as printed, with its standard deviation; percentages with one or two decimals."""
    if number is None:
        return ""
    if number.value is None:
        return "collapsed"
    text = f"{number.value:.2f}".removesuffix("0") if unit == "percent" else shown_number(number.value, unit)
    return text if number.spread is None else f"{text} ± {number.spread:.2f}"


def shown_ours(cell: ReproducedCell, num_seeds: int) -> str:
    """Return our number with its interval, or a remark if there is none; runs that were lost are said.

    Args:
        cell: The cell.
        num_seeds: Number of seeds that were planned.
    """
    if cell.ours is None:
        return NOT_RUN if cell.not_run else "not reached" if cell.problem == NOT_REACHED else "failed"
    text = shown_number(cell.ours, cell.unit)
    if cell.low is not None and cell.high is not None:
        text += f" [{shown_number(cell.low, cell.unit)}, {shown_number(cell.high, cell.unit)}]"
    return text if len(cell.seeds) == num_seeds else f"{text} ({len(cell.seeds)} of {num_seeds} seeds)"


def shown_difference(cell: ReproducedCell) -> str:
    """Return our number minus the published one, with its sign; empty if one is missing."""
    gap = cell.difference
    if gap is None:
        return ""
    return f"{gap:+{_FORMATS[cell.unit]}}"


def unit_in_words(unit: Unit) -> str:
    """Return the unit appended to a column's title; empty for plain numbers."""
    return {"percent": "%", "plain": "", "seconds": "s", "hours": "h"}[unit]


def published_in_words(table: ReproducedTable) -> str:
    """Return how the published numbers are known, how many runs they are of, and what is not known."""
    about = table.plan.study.about
    repeats = f"Each of {about.repeats} runs." if about.repeats else ""
    return " ".join(filter(None, [about.numbers, repeats, about.unknown]))


def claims_asked(table: ReproducedTable) -> str:
    """Return at which scale the claims were asked, and what their intervals cover."""
    return (
        f"Asked at scale {table.plan.scale} with {count(len(table.plan.seeds), 'seed')}. A claim holds if the 95 % "
        "intervals of all its comparisons say so; it does not hold if one of them says the opposite, with intervals "
        "wide enough to hold together. In print: by the published numbers alone, without intervals."
    )


def cost_in_words(table: ReproducedTable) -> str:
    """Return the actual and the estimated cost of the runs."""
    where = "" if table.expected.seconds is None else f" expected on {table.expected.device}"
    expected = f"{table.expected.in_words()}{where}"
    return f"{len(table.plan.runs)} runs, {clock(table.seconds)} of training; {expected}"
