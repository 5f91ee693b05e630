"""Renders one card, or several side by side, as a self-contained HTML file."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import plotly.graph_objects as go

from ebclab.card import wording
from ebclab.card.card import Card
from ebclab.card.catalog import GROUPS
from ebclab.card.measuring import GroupInfo
from ebclab.card.results import Findings, Picture
from ebclab.card.side_by_side import EncoderColumn, NumberRow, SideBySide
from ebclab.reports.html import page_frame, templates
from ebclab.reports.plots import COLOURS, Plot, plot

_SHOWN = 4  # metrics per group in the plot at the top


def render_page(compared: SideBySide) -> str:
    """Return the card of one encoder, or of several side by side, as HTML.

    Args:
        compared: The cards and their comparison.
    """
    cards, columns, rows = compared.cards, compared.columns, compared.rows
    environment = templates("ebclab.card")
    measured = {result.group for card in cards for result in card.results if not result.problem}
    glance = _glance(columns, rows)
    drawn = glance or any(result.findings.plots for card in cards for result in card.results)
    return environment.get_template("card.html.j2").render(
        cards=cards,
        columns=columns,
        groups=[(GROUPS[name].info, [row for row in rows if row.group == name]) for name in GROUPS],
        shown_groups=measured,
        glance=glance,
        details=_details,
        title=wording.title_of(columns),
        summary=wording.summary(columns, rows),
        intervals=wording.what_intervals_say(columns),
        problems=wording.problems(cards),
        shown=wording.shown,
        shown_interval=wording.shown_interval,
        verdict=wording.verdict,
        direction=wording.direction,
        data_url=_data_url,
        **page_frame(drawn=bool(drawn)),
    )


def _glance(columns: Sequence[EncoderColumn], rows: Sequence[NumberRow]) -> Plot | None:
    """Plot the first metrics of each group that are shares with an interval; None if there are none."""
    shares = [
        row for row in rows if row.number.unit == "share" and any(cell and cell.low is not None for cell in row.cells)
    ]
    kept = [
        row for place, row in enumerate(shares) if [each.group for each in shares[:place]].count(row.group) < _SHOWN
    ]
    if not kept:
        return None
    figure = go.Figure()
    for place, column in enumerate(columns):
        found = [(row, cell) for row in kept if (cell := row.cells[place]) and cell.low is not None]
        figure.add_scatter(
            x=[100 * cell.mean for _, cell in found],
            y=[row.number.title for row, _ in found],
            error_x={
                "type": "data",
                "array": [100 * ((cell.high or 0.0) - cell.mean) for _, cell in found],
                "arrayminus": [100 * (cell.mean - (cell.low or 0.0)) for _, cell in found],
                "thickness": 1.5,
            },
            mode="markers",
            orientation="h",
            offsetgroup=str(place),
            name=column.label,
            marker={"size": 8, "color": COLOURS[place % len(COLOURS)]},
        )
    figure.update_xaxes(title="per cent", rangemode="normal")
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(scattermode="group")
    height = 120 + len(kept) * (18 + 14 * len(columns))
    return plot(
        "Shares and their intervals",
        "Dots with 95 % intervals: the first numbers of each group. The tables below have all, and say how measured.",
        figure,
        height=height,
    )


def _details(info: GroupInfo, columns: Sequence[EncoderColumn]) -> list[tuple[Card, Findings]]:
    """Return the findings of a group that are more than metrics, for the first run of each column."""
    first = [column.cards[0] for column in columns]
    found = [(card, result.findings) for card in first for result in card.results if result.group == info.name]
    return [(card, each) for card, each in found if each.tables or each.plots or each.pictures or each.remarks]


def _data_url(picture: Picture) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"
