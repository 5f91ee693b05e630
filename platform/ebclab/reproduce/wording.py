"""Formats the numbers of a reproduction as text, for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ebclab.formatting import clock, count
from ebclab.interval import NumberFormat
from ebclab.reproduce.study import PublishedNumber, Unit
from ebclab.reproduce.table import NOT_REACHED, ReproducedCell, ReproducedTable

NOT_RUN = "not run at this scale"


_FORMATS: Mapping[Unit, NumberFormat] = {
    "percent": NumberFormat(digits=1),
    "plain": NumberFormat(digits=".3g"),
    "seconds": NumberFormat(digits=1),
    "hours": NumberFormat(digits=2),
}


def shown_published(number: PublishedNumber | None, unit: Unit) -> str:
    """Return a published number as printed, with its standard deviation; percentages with one or two decimals."""
    if number is None:
        return ""
    if number.value is None:
        return "collapsed"
    text = f"{number.value:.2f}".removesuffix("0") if unit == "percent" else _FORMATS[unit].number(number.value)
    return text if number.spread is None else f"{text} ± {number.spread:.2f}"


def shown_ours(cell: ReproducedCell, num_seeds: int) -> list[str]:
    """Return our number, or why there is none, then its interval and how many of the planned seeds it is over."""
    if cell.ours is None:
        return [NOT_RUN if cell.not_run else "not reached" if cell.problem == NOT_REACHED else "failed"]
    form = _FORMATS[cell.unit]
    ends = form.ends(cell.ours.low, cell.ours.high)
    lost = len(cell.seeds) < num_seeds
    seeds = f"({len(cell.seeds)} of {num_seeds} seeds)" if lost else ""
    return [form.number(cell.ours.mean), *filter(None, [f"({ends})" if ends else "", seeds])]


def shown_difference(cell: ReproducedCell) -> str:
    """Return our number minus the published one, with its sign; empty if one is missing."""
    return replace(_FORMATS[cell.unit], is_signed=True).number(cell.difference)


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
