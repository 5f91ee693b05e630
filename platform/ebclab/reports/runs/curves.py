"""Plots of runs: one plot per logged metric, by epochs, with markers at decisions on a run's health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from ebclab.document.document import Plot
from ebclab.reports.comparable import as_text
from ebclab.reports.plots import COLOURS, METRICS, RED, drawable, epoch_ticks, plot, thinned
from ebclab.reports.runs.facts import OF_TIME, event_in_words, score_in_words, shown_number
from ebclab.runs.record import RunRecord, Table

MOST_POINTS = 800
"""Maximum number of points per curve; longer curves are thinned evenly, which the page states."""

_DASHES = {"solid": "solid", "dash": "dashed", "dot": "dotted"}  # names in plotly.js and in CSS
_FEW_POINTS = 40  # curves with at most so many points have markers
_LAST = ("learning_rate", "images_per_second")
_WORDS = METRICS | {
    "info_nce": "InfoNCE",
    "learning_rate": "learning rate",
    "images_per_second": "images a second",
}


class Look(NamedTuple):
    """Line style of a run's curves: seven colours with solid lines, then dashed, then dotted."""

    colour: str
    dash: str

    @property
    def border(self) -> str:
        return f"3px {_DASHES[self.dash]} {self.colour}"


def look(number: int) -> Look:
    """Return the line style of the run with this index."""
    return Look(COLOURS[number % len(COLOURS)], [*_DASHES][number // len(COLOURS) % len(_DASHES)])


def curves(records: Sequence[RunRecord]) -> list[Plot]:
    """Return a plot for each metric that a run logged: loss, held-out scores, diagnostics, callbacks, rates."""
    logged, held_out = _names(record.metrics for record in records), _names(record.scores for record in records)
    own = _names(record.callbacks for record in records)
    first = [name for name in ("loss",) if name in logged]
    others = [name for name in logged if name not in (*first, *_LAST)]
    drawn = [(name, "metrics") for name in first] + [(name, "scores") for name in held_out]
    drawn += [(name, "metrics") for name in others] + [(name, "callbacks") for name in own]
    drawn += [(name, "metrics") for name in _LAST if name in logged]
    return [_curve(records, name, kind) for name, kind in drawn]


def is_thinned(records: Sequence[RunRecord]) -> bool:
    """Return whether any run has more points than are drawn."""
    return any(len(table["step"]) > MOST_POINTS for r in records for table in (r.metrics, r.scores, r.callbacks))


def _names(tables: Iterable[Table]) -> list[str]:
    return [name for name in dict.fromkeys(name for table in tables for name in table) if name not in OF_TIME]


def _curve(records: Sequence[RunRecord], name: str, kind: str) -> Plot:
    figure, by_epochs = go.Figure(), all(record.steps_per_epoch for record in records)
    most = 0.0
    for number, record in enumerate(records):
        table: Table = getattr(record, kind)
        if name not in table:
            continue
        points = _points(table, name)
        x = {step: step / (record.steps_per_epoch or 1) if by_epochs else step for step in points}
        most = max([most, *x.values()])
        drawn = look(number)
        run = as_text(record.name)
        figure.add_scatter(
            x=list(x.values()),
            y=[drawable(value) for value in points.values()],
            text=[f"{run}, step {step:,.0f}" for step in points],
            mode="lines+markers" if len(points) <= _FEW_POINTS else "lines",
            line={"color": drawn.colour, "dash": drawn.dash, "width": 2},
            marker={"size": 5},
            meta=number,
            hovertemplate="%{text}<br>%{y}<extra></extra>",
        )
        if kind == "metrics" and name not in _LAST:
            _mark(figure, record, points, x, number)
    title = {"title": "epochs", **epoch_ticks(most)} if by_epochs else {"title": "steps"}
    figure.update_xaxes(**title, rangemode="tozero")
    is_share = shown_number(name, 1.0).endswith("%")
    figure.update_yaxes(tickformat=".1%" if is_share else "", nticks=6, **_range(figure, is_share))
    made = plot(_title(name, kind), "", figure, height=285)
    made.figure["layout"]["showlegend"] = False
    made.figure["layout"]["margin"] = {"l": 56, "r": 12, "t": 28, "b": 44}
    return made


def _range(figure: go.Figure, is_share: bool) -> dict[str, Any]:
    """Return the range of an axis: shares stay in [0, 1]; a single value gets margins of 5 % (plotly's default: 1)."""
    values = {value for trace in figure.data for value in trace.y if value is not None}
    shares_only = is_share and all(0 <= value <= 1 for value in values)
    if len(values) != 1:
        return {"autorangeoptions": {"clipmin": 0.0, "clipmax": 1.0}} if shares_only else {}
    (value,) = values
    spread = abs(value) / 20 or 0.05
    low, high = value - spread, value + spread
    return {"range": [max(low, 0.0), min(high, 1.0)] if shares_only else [low, high]}


def _title(name: str, kind: str) -> str:
    if kind == "scores":
        return score_in_words(name)
    return _WORDS.get(name, name.replace("_", " ") if kind == "metrics" else name)


def _points(table: Table, name: str) -> dict[float, float | None]:
    """Return the values of a metric by step, at most ``MOST_POINTS`` of them, including the last one."""
    points = [(step or 0, value) for step, value in zip(table["step"], table[name], strict=True) if value is not None]
    return dict(thinned(points, MOST_POINTS))


def _mark(
    figure: go.Figure,
    record: RunRecord,
    points: Mapping[float, float | None],
    x: Mapping[float, float],
    number: int,
) -> None:
    """Add markers for findings and decisions on the run's health, each at the last point that was logged by then."""
    marks = []
    for event in record.events:
        before = [step for step in points if step <= event["step"]]
        if event.get("event") == "health" and before:
            marks.append((x[before[-1]], points[before[-1]], as_text(event_in_words(event))))
    if marks:
        figure.add_scatter(
            x=[mark[0] for mark in marks],
            y=[mark[1] for mark in marks],
            text=[mark[2] for mark in marks],
            mode="markers",
            marker={"color": RED, "symbol": "triangle-down", "size": 11},
            meta=number,
            hovertemplate="%{text}<extra></extra>",
        )
