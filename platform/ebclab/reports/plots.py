"""A plot on the page: plain data for plotly.js, with colours for light and dark backgrounds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import plotly.graph_objects as go

from ebclab.config.yaml_text import JsonObject
from ebclab.document.document import Plot
from ebclab.interval import Interval
from ebclab.runs.references import PIXELS, UNTRAINED, Name
from ebclab.sweeps.log import Trial
from ebclab.sweeps.policies.stopping import REASONS

Point = TypeVar("Point")

BLUE, GREY, ORANGE, RED = "#3987d0", "#8c939c", "#e8930c", "#d5442e"
PURPLE, GREEN, BROWN = "#b46fc0", "#2e9e6b", "#a6761d"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, BROWN, GREY)
"""Colours of items that are drawn together, in order."""
SCALE = [[0.0, "#4358b0"], [0.35, "#2f87b5"], [0.7, "#52b788"], [1.0, "#f2c14e"]]
ENDS = {
    "finished": ("finished", BLUE, "circle"),
    "below the others at a rung": ("stopped: below the others at a rung", GREY, "x-thin"),
    "below the median": ("stopped: below the median", GREY, "triangle-down"),
    "no gain": ("stopped: no more gain", GREY, "square"),
    "collapsed": ("stopped: collapsed", PURPLE, "diamond"),
    "stopped": ("stopped", GREY, "line-ns"),
    "diverged": ("diverged", RED, "star"),
    "failed": ("failed", BROWN, "cross"),
    "not over": ("not over yet", GREEN, "circle-open"),
}
"""The ways in which a trial may end: label, colour and marker symbol."""
METRICS = {
    "ess": "effective sample size (share of K)",
    "ess_with_positive": "effective sample size with the positive",
    "energy_gap": "energy gap",
    "log_k_saturation": "saturation of the log K bound",
}
"""Diagnostics by name, with their titles."""
_FEW_EPOCHS = 10  # with more, plotly places ticks at whole epochs by itself


def plot(title: str, note: str, figure: go.Figure, *, height: int = 380) -> Plot:
    """Return a figure with its title and note; the page sets background and fonts."""
    figure.update_layout(
        template=go.layout.Template(),
        title=None,
        height=height,
        margin={"l": 64, "r": 24, "t": 24, "b": 56},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(exponentformat="none")  # 0.0001 as in the tables, not 100µ
    figure.update_yaxes(exponentformat="none")
    # By part: the whole figure would write NumPy's numbers as bytes, which a CSV or a card's JSON could not show.
    plain = {"data": [trace.to_plotly_json() for trace in figure.data], "layout": figure.layout.to_plotly_json()}
    return Plot(title, note, plain, height)


def reference_line(name: Name) -> JsonObject:
    """Return the line by which a reference is drawn everywhere."""
    return {"color": GREY, "width": 2, "dash": {PIXELS: "dash", UNTRAINED: "dot"}[name]}


def add_references(figure: go.Figure, references: Sequence[tuple[Name, int, float]]) -> None:
    """Draw references, each a name, the place of a row and a value, as lines across the rows of a horizontal plot."""
    for name, place, value in references:
        figure.add_shape(type="line", x0=value, x1=value, y0=place - 0.5, y1=place + 0.5, line=reference_line(name))
    for name in dict.fromkeys(name for name, _, _ in references):  # shapes have no hover and no legend
        figure.add_scatter(x=[None], y=[None], mode="lines", name=name, line=reference_line(name))


def in_panels(made: Plot) -> Plot:
    """Enlarge the top margin of panels for their titles and the legend."""
    layout = made.figure["layout"]
    layout["margin"]["t"] = 70
    layout["legend"] |= {"y": 1.0, "yref": "container", "yanchor": "top"}
    for title in layout["annotations"]:
        title["font"] = {"size": 12}
    return made


def error_bars(values: Sequence[Interval], thickness: float) -> JsonObject:
    """Return error bars of the intervals, of length 0 if there is no interval."""
    return {
        "type": "data",
        "array": [0.0 if value.high is None else value.high - value.mean for value in values],
        "arrayminus": [0.0 if value.low is None else value.mean - value.low for value in values],
        "thickness": thickness,
    }


def range_of(
    values: Sequence[Interval], *, least_margin: float, least: float = 0.0, most: float = math.inf
) -> list[float]:
    """Return the range of an axis that spans all intervals, within bounds: by itself, a grouped one begins at 0."""
    ends = [end for value in values for end in (value.low, value.mean, value.high) if end is not None]
    margin = 0.04 * (max(ends) - min(ends)) or least_margin
    return [max(least, min(ends) - margin), min(most, max(ends) + margin)]


def epoch_ticks(most: float) -> dict[str, int]:
    """Return settings of an axis with so many epochs that place ticks at whole ones."""
    return {"dtick": 1} if most <= _FEW_EPOCHS else {}


def drawable(value: float | None) -> float | None:
    """Return a value, or None, a gap in a curve, if it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most so many points of a curve, evenly spaced; the last one is included."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def by_ending(trials: Iterable[Trial]) -> Iterator[tuple[str, str, str, str, list[Trial]]]:
    """Yield the trials of each way to end: its key, label, colour and marker symbol, and the trials."""
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[ending(trial)].append(trial)
    yield from ((end, *look, groups[end]) for end, look in ENDS.items() if end in groups)


def ending(trial: Trial) -> str:
    """Return how a trial ended: a key of ``ENDS``."""
    if trial.state == "stopped":
        return next((name for start, name in REASONS.items() if trial.reason.startswith(start)), "stopped")
    return trial.state if trial.state in ENDS else "not over"
