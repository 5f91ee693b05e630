"""Renders a card as Markdown: the metrics and remarks of the page, without other tables, plots and pictures."""

from __future__ import annotations

from collections.abc import Sequence

from ebclab.card.catalog import GROUPS
from ebclab.card.side_by_side import EncoderColumn, NumberRow, SideBySide
from ebclab.card.wording import direction, problems, shown_cell, summary, title_of, verdict, what_intervals_say
from ebclab.formatting import escape_markdown, markdown_table


def render_markdown(compared: SideBySide) -> str:
    """Return the card of one encoder, or of several side by side, as Markdown."""
    cards, columns, rows = compared.cards, compared.columns, compared.rows
    parts = [f"# {escape_markdown(title_of(columns))}", escape_markdown(summary(columns, rows)), _encoders(columns)]
    for group in dict.fromkeys(row.group for row in rows):
        info = GROUPS[group].info
        parts += [f"## {info.title}", f"Source: {escape_markdown(info.source)}."]
        parts.append(_numbers(columns, [row for row in rows if row.group == group]))
        remarks = [
            f"* {escape_markdown(card.label)}: {escape_markdown(remark)}"
            for card in cards
            for result in card.results
            if result.group == group
            for remark in result.findings.remarks
        ]
        if remarks:
            parts.append("\n".join(remarks))
    if found := problems(cards):
        parts += ["## Not measured", "\n".join(f"* {escape_markdown(line)}" for line in found)]
    parts += ["## Intervals", escape_markdown(what_intervals_say(columns))]
    return "\n\n".join(parts) + "\n"


def _encoders(columns: Sequence[EncoderColumn]) -> str:
    return "\n".join(
        f"* **{escape_markdown(column.label)}**: {escape_markdown(card.origin)} ({escape_markdown(card.address)})"
        for column in columns
        for card in column.cards
    )


def _numbers(columns: Sequence[EncoderColumn], rows: Sequence[NumberRow]) -> str:
    """Return the metrics of a group as a table: one row each, one column per encoder, differences, protocol."""
    heads = ["", *(column.label for column in columns)]
    several = len(columns) > 1
    if several:
        heads.append(f"against {columns[0].label}")
    lines = [[*heads, "images", "protocol"]]
    for row in rows:
        number = row.number
        cells = [shown_cell(cell, number.unit) for cell in row.cells]
        against = ["; ".join(filter(None, (verdict(row, cell) for cell in row.cells[1:])))] if several else []
        lines.append([f"{number.title} {direction(row)}", *cells, *against, f"{number.num_images:,}", number.protocol])
    return "\n".join(markdown_table(lines))
