"""Formats the metrics of a card as text, for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Sequence

from ebclab.card.card import Card
from ebclab.card.catalog import GROUPS
from ebclab.card.side_by_side import EncoderCell, EncoderColumn, NumberRow
from ebclab.interval import PLAIN, PLAIN_DIFFERENCE, POINTS, SHARE, NumberFormat


def number_format(row: NumberRow) -> NumberFormat:
    """Return how a metric is written: shares as percentages, others with three decimals."""
    return SHARE if row.number.unit == "share" else PLAIN


def verdict(row: NumberRow, cell: EncoderCell) -> str:
    """Return the difference to the first column's cell, its interval, and the verdict; empty if there is none."""
    gap = cell.against_first
    if gap is None:
        return ""
    return f"{(POINTS if row.number.unit == 'share' else PLAIN_DIFFERENCE).interval(gap)}, {gap.verdict}"


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
        f"{row.number.title} {number_format(row).number(row.cells[0].value.mean)}"
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


def problems(cards: Sequence[Card], *, failed: bool) -> list[str]:
    """Return a line for every reason why a group failed, or was skipped; of all cards alike, without their labels."""
    labels: dict[tuple[str, str], list[str]] = {}
    for card in cards:
        for result in card.results:
            if result.problem and result.failed == failed:
                labels.setdefault((result.group, result.problem), []).append(card.label)
    return [
        f"{GROUPS[group].info.title if group in GROUPS else group}{of}: {problem}"
        for (group, problem), found in labels.items()
        for of in ["" if len(found) == len(cards) else f" of {', '.join(dict.fromkeys(found))}"]
    ]
