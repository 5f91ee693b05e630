"""Formats the metrics of a card as text, for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Sequence

from ebclab.card.card import Card
from ebclab.card.catalog import GROUPS
from ebclab.card.results import Unit
from ebclab.card.side_by_side import Cell, EncoderColumn, NumberRow


def shown(value: float, unit: Unit) -> str:
    """Return a value as text: shares as percentages, others with three decimals."""
    return f"{100 * value:.1f} %" if unit == "share" else f"{value:.3f}"


def shown_interval(low: float | None, high: float | None, unit: Unit) -> str:
    """Return an interval as text; empty if there is none."""
    if low is None or high is None:
        return ""
    return f"[{100 * low:.1f}, {100 * high:.1f}]" if unit == "share" else f"[{low:.3f}, {high:.3f}]"


def shown_cell(cell: Cell | None, unit: Unit) -> str:
    """Return a metric with its interval; empty if it was not measured."""
    if cell is None:
        return ""
    return " ".join(filter(None, [shown(cell.mean, unit), shown_interval(cell.low, cell.high, unit)]))


def brief_cell(cell: Cell | None, unit: Unit) -> str:
    """Return a metric, with a star if it differs significantly from the first column's."""
    if cell is None:
        return ""
    star = "*" if cell.against_first is not None and cell.against_first.is_noise is False else " "
    return f"{shown(cell.mean, unit)} {star}"


def verdict(row: NumberRow, cell: Cell | None) -> str:
    """Return the difference to the first column's cell, its interval, and the verdict; empty if there is none."""
    if cell is None or cell.against_first is None:
        return ""
    gap, unit = cell.against_first, row.number.unit
    mean = f"{100 * gap.mean:+.1f} points" if unit == "share" else f"{gap.mean:+.3f}"
    interval = shown_interval(gap.low, gap.high, unit)
    return f"{mean} {interval}, {gap.verdict}" if interval else f"{mean}, {gap.verdict}"


def direction(row: NumberRow) -> str:
    """Return which direction of a metric is better, as an arrow; empty if neither is."""
    return {"higher": "↑", "lower": "↓", "neither": ""}[row.number.better]


def title_of(columns: Sequence[EncoderColumn]) -> str:
    """Return the heading of the page."""
    names = [column.label + (f", {len(column.cards)} seeds" if len(column.cards) > 1 else "") for column in columns]
    return " · ".join(names)


def summary(columns: Sequence[EncoderColumn], rows: Sequence[NumberRow]) -> str:
    """Return a one-sentence summary: one metric of each group, of the first column."""
    seen: dict[str, NumberRow] = {}
    for row in rows:
        if row.group not in seen or row.number.name == GROUPS[row.group].info.headline:
            seen[row.group] = row
    card = columns[0].cards[0]
    parts = [
        f"{row.number.title} {shown(row.cells[0].mean, row.number.unit)}"
        for row in seen.values()
        if row.cells[0] is not None
    ]
    return f"{columns[0].label} on {card.dataset}, {card.num_test:,} test images: {', '.join(parts) or 'nothing'}."


def what_intervals_say(columns: Sequence[EncoderColumn]) -> str:
    """Return an explanation of what the intervals of the page cover."""
    several = [column for column in columns if len(column.cards) > 1]
    single = [column for column in columns if len(column.cards) == 1]
    parts = []
    if single:
        names = ", ".join(column.label for column in single)
        parts.append(
            f"Of {names} there is one encoder: an interval says how far the number would move with other test images, "
            "and nothing about training again."
        )
    if several:
        counts = ", ".join(f"{column.label} {len(column.cards)}" for column in several)
        parts.append(
            f"Runs that differ in the seed alone share a column ({counts}): their intervals are for other seeds and "
            "other test images. Few seeds say little about others; read such intervals as a hint."
        )
    if len(columns) > 1:
        parts.append(
            f"Differences are to {columns[0].label}, image by image on the same test images, with intervals that hold "
            f"together for the {len(columns) - 1} compared with it in one number (Bonferroni). Numbers are many: "
            "one in twenty lies beyond noise by chance."
        )
    return " ".join(parts)


def problems(cards: Sequence[Card]) -> list[str]:
    """Return a line for every group that was skipped or failed."""
    return [
        f"{card.label}, {GROUPS[result.group].info.title if result.group in GROUPS else result.group}: {result.problem}"
        for card in cards
        for result in card.results
        if result.problem
    ]
