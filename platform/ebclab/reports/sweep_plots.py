"""Plots of a sweep: learning curves, confirmed values, diagnostics, times, and what the settings do."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from ebclab.config.yaml_text import JsonObject
from ebclab.document.document import CellValue, ColumnHead, Plot, Remark, Table, numeric
from ebclab.evaluation.objectives import SHARES
from ebclab.formatting import count
from ebclab.reports.comparable import Footing, as_text, labels
from ebclab.reports.plots import (
    BLUE,
    GREY,
    METRICS,
    ORANGE,
    SCALE,
    by_ending,
    drawable,
    epoch_ticks,
    error_bars,
    in_panels,
    plot,
    thinned,
)
from ebclab.reports.reading import SweepRecord
from ebclab.sweeps.log import Trial
from ebclab.sweeps.space.space import Parameter

MOST_CURVES, MOST_POINTS = 150, 50
"""Maximum numbers of curves and of points per curve; more are thinned evenly, which the page states."""
MOST_BINS, MOST_LEVELS = 6, 8
"""Maximum numbers of bins of a range in the heat map, and of values that have a bin each."""
_LIGHT_SCALE = [[0.0, "#8f9de2"], [0.35, "#5fb0dc"], [0.7, "#74d0a5"], [1.0, "#f7d774"]]
"""Colours on which dark text has a contrast of at least 7, on light and dark pages."""
_BEST_KEPT = 30
_DIAGNOSTICS = ("ess", "energy_gap", "log_k_saturation")
"""Diagnostics that are drawn if they were logged."""


def learning_curves(record: SweepRecord) -> Plot | None:
    """Return a plot of every search trial's objective by epochs; a marker shows how each ended."""
    measured = [trial for trial in record.search if trial.curve]
    if not measured:
        return None
    drawn = _kept(record, measured)
    figure = go.Figure()
    best = record.order[0] if record.order else None
    for end, words, colour, symbol, group in by_ending(drawn):
        others, line = _joined([trial for trial in group if trial is not best]), {"color": colour, "width": 1.2}
        figure.add_scatter(**others, mode="lines", line=line, opacity=0.55, legendgroup=end, showlegend=False)
        figure.add_scatter(
            x=[trial.epochs_done for trial in group],
            y=[drawable(trial.objectives[trial.epochs_done]) for trial in group],
            text=[as_text(f"{trial.id} {trial.reason}".strip()) for trial in group],
            **_marks(f"{words} ({len(group)})", colour, symbol),
            legendgroup=end,
        )
    if best:
        line = {"color": ORANGE, "width": 3}
        figure.add_scatter(**_joined([best]), mode="lines", line=line, name=f"best of the search, {as_text(best.id)}")
    figure.update_traces(hovertemplate="%{text}<br>epoch %{x}: %{y}<extra></extra>")
    figure.update_xaxes(title="epochs", **epoch_ticks(_most_epochs(drawn)))
    figure.update_yaxes(title=record.objective_words, tickformat=tick_format(record.objective))
    note = "One line a trial; the mark at its end says how it ended. Hover for the trial and its reason."
    if len(drawn) < len(measured) or any(len(trial.curve) > MOST_POINTS for trial in drawn):
        note += (
            f" Drawn: {len(drawn)} of {len(measured)} trials (the {_BEST_KEPT} best and others evenly by rank), each "
            f"with at most {MOST_POINTS} of its epochs; the JSON file beside this page has all."
        )
    return plot("Learning curves", note, figure, height=440)


def _marks(name: str, colour: str, symbol: str) -> JsonObject:
    """Return the look of the ends of trials."""
    marker: JsonObject = {"color": colour, "symbol": symbol, "size": 8, "line": {"width": 1.5, "color": colour}}
    return {"mode": "markers", "marker": marker, "name": name}


def _most_epochs(trials: Sequence[Trial]) -> int:
    return max((trial.epochs_done for trial in trials), default=0)


def _kept(record: SweepRecord, measured: Sequence[Trial]) -> list[Trial]:
    """Return the trials that are drawn: the best ones, and others evenly spaced by rank."""
    if len(measured) <= MOST_CURVES:
        return list(measured)
    ids = {trial.id for trial in record.order}
    order = [*record.order, *(trial for trial in measured if trial.id not in ids)]
    rest, count = order[_BEST_KEPT:], MOST_CURVES - _BEST_KEPT
    return order[:_BEST_KEPT] + [rest[place * len(rest) // count] for place in range(count)]


def _joined(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return the curves of trials as one line with gaps: x, y, and the hover text of each point."""
    x: list[Any] = []
    y: list[Any] = []
    text: list[str] = []
    for trial in trials:
        points = thinned([*trial.objectives.items()], MOST_POINTS)
        x += [*(epoch for epoch, _ in points), None]
        y += [*(drawable(value) for _, value in points), None]
        text += [as_text(trial.id)] * (len(points) + 1)
    return {"x": x, "y": y, "text": text}


def confirmed_values(record: SweepRecord) -> Plot:
    """Return a plot of the runs of all confirmed settings, with means and 95 % confidence intervals."""
    figure, confirmed = go.Figure(), record.confirmed
    rows = [as_text(entry.in_words(record.plan)) for entry in confirmed]
    bars = error_bars(confirmed, 2) | {"width": 8, "color": BLUE}
    colours = [ORANGE, *[BLUE] * (len(confirmed) - 1)]
    marker = {"size": 12, "symbol": "diamond", "color": colours}
    figure.add_scatter(
        x=[e.mean for e in confirmed], y=rows, mode="markers", marker=marker, error_x=bars, name="mean, 95 %"
    )
    runs = [
        (value, row, seed)
        for e, row in zip(confirmed, rows, strict=True)
        for value, seed in zip(e.values, e.seeds, strict=True)
    ]
    figure.add_scatter(
        x=[value for value, _, _ in runs],
        y=[row for _, row, _ in runs],
        text=[f"seed {seed}" for _, _, seed in runs],
        mode="markers",
        marker={"size": 7, "symbol": "circle-open", "color": GREY, "line": {"width": 1.5}},
        name="one seed",
    )
    figure.update_xaxes(title=record.objective_words, tickformat=tick_format(record.objective))
    figure.update_yaxes(autorange="reversed", automargin=True)
    note = "Runs at full budget with seeds that the search never saw; bars are 95 % intervals of the mean."
    return plot("Confirmed with other seeds", note, figure, height=150 + 44 * len(confirmed))


def diagnostics(record: SweepRecord) -> Plot | None:
    """Return plots of ESS, energy gap and log-K saturation by epochs for the best, the median and the worst trial."""
    finished = [trial for trial in record.order if trial.state == "finished"]
    order = finished if len(finished) >= 3 else record.order
    logged = [name for name in _DIAGNOSTICS if any(name in point.metrics for t in order for point in t.curve.values())]
    if not logged:
        return None
    chosen = {"best": (order[0], ORANGE), "median": (order[len(order) // 2], BLUE), "worst": (order[-1], GREY)}
    ticks = epoch_ticks(_most_epochs([trial for trial, _ in chosen.values()]))
    figure = make_subplots(1, len(logged), subplot_titles=[METRICS[name] for name in logged], horizontal_spacing=0.08)
    for column, name in enumerate(logged, start=1):
        for words, (trial, colour) in chosen.items():
            points = {epoch: drawable(p.metrics[name]) for epoch, p in sorted(trial.curve.items()) if name in p.metrics}
            line = {"color": colour, "width": 2.2}
            figure.add_scatter(
                x=list(points), y=list(points.values()), mode="lines+markers", line=line, marker={"size": 5},
                name=f"{words}, {as_text(trial.id)}", legendgroup=words, showlegend=column == 1, row=1, col=column,
            )  # fmt: skip
        figure.update_xaxes(title="epochs", **ticks, row=1, col=column)
    which = "finished" if order is finished else "measured"
    note = f"The best, the median and the worst of the {len(order)} {which} trials, by rank."
    return in_panels(plot("Diagnostics of training", note, figure, height=340))


def objective_against_time(record: SweepRecord) -> Plot | None:
    """Return a plot of each trial's last objective against its training time, with the Pareto front."""
    ended = [t for t in record.search if t.last and t.state != "failed" and math.isfinite(t.last.objective)]
    if not ended:
        return None
    figure = go.Figure()
    gpus = {t.id: t.gpu_seconds / t.seconds if t.seconds else record.gpus_per_trial for t in ended}
    points = {t.id: (t.curve[t.epochs_done].seconds, t.curve[t.epochs_done].objective) for t in ended}
    line = pareto(list(points.values()))
    stairs = {"color": ORANGE, "width": 2, "shape": "hv"}
    figure.add_scatter(
        x=[x for x, _ in line],
        y=[y for _, y in line],
        mode="lines",
        line=stairs,
        name="best for the time",
        hoverinfo="skip",
    )
    for _, words, colour, symbol, group in by_ending(ended):
        hours = [points[t.id][0] / 3600 * gpus[t.id] for t in group]
        cost = [f"{each:.3g} GPU-hours" if gpus[t.id] else "no GPU" for t, each in zip(group, hours, strict=True)]
        figure.add_scatter(
            x=[points[t.id][0] for t in group],
            y=[points[t.id][1] for t in group],
            text=[f"{as_text(t.id)}, {each}" for t, each in zip(group, cost, strict=True)],
            **_marks(words, colour, symbol),
            hovertemplate="%{text}<br>%{x:.1f} s: %{y}<extra></extra>",
        )
    shares = {round(each, 6) for each in gpus.values()}  # several if a sweep was resumed with other GPUs
    share = shares.pop()
    scale = f"; {3600 / share:,.0f} s are one GPU-hour" if share else "; no GPU was used"
    if shares:
        scale = "; trials had different numbers of GPUs"
    figure.update_xaxes(title=f"training time of the trial, seconds{scale}", rangemode="tozero")
    figure.update_yaxes(title=record.objective_words, tickformat=tick_format(record.objective))
    note = "The line is the Pareto front: no trial had more after as little time."
    return plot("Objective against time", note, figure)


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto front of seconds and objectives: points above all others that took no more time."""
    line: list[tuple[float, float]] = []
    for seconds, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not line or value > line[-1][1]:
            line.append((seconds, value))
    return line


def tick_format(objective: str) -> str:
    """Return plotly's tick format for an objective."""
    return ".1%" if objective in SHARES else ".3f"


_COLUMNS = 3


def importance_bars(record: SweepRecord) -> Plot | None:
    """Return a bar chart of the share of the objective's variance that each setting explains."""
    shares, compared = record.importance, record.compared
    if not shares:
        return None
    names = labels(record.plan.space)
    order = sorted(shares, key=lambda name: shares[name])
    figure = go.Figure()
    figure.add_bar(
        x=[shares[name] for name in order],
        y=[names[name] for name in order],
        orientation="h",
        marker={"color": BLUE},
        text=[f"{shares[name]:.0%}" for name in order],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    figure.update_xaxes(title="share of the explained variance", tickformat=".0%", range=[0, 1.08])
    figure.update_yaxes(automargin=True)
    num_trials, after = len(compared.trials), count(compared.epoch, "epoch")
    rough = " With so few trials the shares are rough." if num_trials < 10 * len(shares) else ""
    note = (
        f"fANOVA on {num_trials} trials, all by what they had after {after}; over the whole space, each "
        f"setting alone, scaled to 100 % in sum.{rough}"
    )
    return plot("What mattered", note, figure, height=130 + 34 * len(order))


def slices(record: SweepRecord) -> Plot | None:
    """Return scatter plots of every trial's last objective against each setting, coloured by epochs done."""
    space = record.plan.space
    measured = [trial for trial in record.order if space.holds(trial.point)]
    if not measured:
        return None
    names = labels(space)
    rows = -(-len(names) // _COLUMNS)
    columns = min(_COLUMNS, len(names))
    figure = make_subplots(rows, columns, shared_yaxes=True, horizontal_spacing=0.03, vertical_spacing=0.22 / rows)
    height = 60 + 260 * rows
    epochs = [trial.epochs_done for trial in measured]
    colour = {"color": epochs, "coloraxis": "coloraxis"} if len(set(epochs)) > 1 else {"color": BLUE}
    for place, (name, parameter) in enumerate(space.by_name.items()):
        row, column = place // columns + 1, place % columns + 1
        figure.add_scatter(
            x=[_shown(parameter, trial.point[name]) for trial in measured],
            y=[trial.objectives[trial.epochs_done] for trial in measured],
            text=[f"{as_text(trial.id)}, {count(trial.epochs_done, 'epoch')}" for trial in measured],
            mode="markers",
            marker={**colour, "size": 8},
            hovertemplate="%{text}<br>%{x}: %{y}<extra></extra>",
            showlegend=False,
            row=row,
            col=column,
        )
        axis = {"title": {"text": names[name], "standoff": 6}, **_axis(parameter)}
        figure.update_xaxes(**axis, row=row, col=column)
    figure.update_yaxes(tickformat=tick_format(record.objective))
    figure.update_yaxes(title=record.objective_words, col=1)
    note = "One dot a trial, at its last measurement"
    if "coloraxis" in colour:
        bar = {"title": {"text": "epochs"}, "thickness": 12, **epoch_ticks(_most_epochs(measured))}
        figure.update_layout(coloraxis={"colorscale": SCALE, "colorbar": bar})
        note += "; dark dots were stopped early and might have come further"
    return plot("Slices", f"{note}.", figure, height=height)


@dataclass(frozen=True)
class _Drawn:
    """A setting of the compared trials as an axis shows it."""

    label: str
    values: list[Any]  # of each trial: a number, or text
    is_log: bool
    is_numeric: bool
    is_choice: bool

    @classmethod
    def of(cls, parameter: Parameter, label: str, compared: Footing) -> _Drawn:
        found = [parameter.find(trial.point[parameter.name]) for trial in compared.trials]
        values = found if parameter.is_numeric else [as_text(value) for value in found]
        return cls(label, values, _is_log(parameter), parameter.is_numeric, parameter.kind == "choice")


_PADDING = 0.05
"""Share of an axis of numbers that a contour plot adds at each end."""


def _contour_axis(drawn: _Drawn) -> tuple[list[Any], JsonObject]:
    """Return the lines of the grid along a setting, each end of numbers padded, and the settings of the axis."""
    places = sorted(set(drawn.values))
    if not drawn.is_numeric:
        padding = _PADDING * (len(places) - 1)
        return places, {"type": "category", "range": [-padding, len(places) - 1 + padding]}
    ends = [math.log10(end) if drawn.is_log else end for end in (places[0], places[-1])]
    padding = _PADDING * (ends[1] - ends[0])
    shown = [ends[0] - padding, ends[1] + padding]
    low, high = (10**end if drawn.is_log else end for end in shown)
    return [low, *places, high], {"type": "log" if drawn.is_log else "linear", "range": shown}


def contour(record: SweepRecord) -> Plot | None:
    """Return a contour plot of the objective over the two most important settings."""
    shares, compared = record.importance, record.compared
    if len(shares) < 2:
        return None
    space, names = record.plan.space, labels(record.plan.space)
    top = sorted(sorted(shares, key=lambda name: -shares[name])[:2], key=names.__getitem__)
    across, up = (_Drawn.of(space.by_name[name], names[name], compared) for name in top)
    figure = go.Figure()
    lines = []
    for drawn, update in ((across, figure.update_xaxes), (up, figure.update_yaxes)):
        places, axis = _contour_axis(drawn)
        update(title=drawn.label, **axis)
        lines.append(places)
    note = (
        f"The two most important settings, {len(compared.trials)} trials after {count(compared.epoch, 'epoch')} "
        "(dots); the surface between them is interpolated, all other settings vary freely."
    )
    made = plot("Two settings together", note, figure, height=420)
    dots = {"color": ORANGE, "size": 7, "line": {"color": "#ffffff", "width": 1}}
    made.figure["data"] = [
        {"type": "scatter", "x": across.values, "y": up.values, "mode": "markers", "marker": dots, "showlegend": False}
    ]
    if len(set(across.values)) > 1 and len(set(up.values)) > 1:
        title = {"text": record.objective_words, "side": "right"}
        surface = {"type": "contour", "x": lines[0], "y": lines[1], "z": _surface(across, up, lines, compared.values)}
        look = {"colorscale": SCALE, "colorbar": {"title": title, "thickness": 12}, "opacity": 0.9}
        between = {"connectgaps": True, "contours": {"coloring": "heatmap"}, "line": {"smoothing": 1.3}}
        made.figure["data"].insert(0, {**surface, **look, **between, "hoverinfo": "none"})
    return made


def _surface(across: _Drawn, up: _Drawn, lines: list[list[Any]], values: Sequence[float]) -> list[list[float | None]]:
    """Return the best objective at each crossing of the lines, by row; None where no trial is."""
    columns, rows = ({place: number for number, place in enumerate(places)} for places in lines)
    found: list[list[float | None]] = [[None] * len(columns) for _ in rows]
    for x, y, value in zip(across.values, up.values, values, strict=True):
        known = found[rows[y]][columns[x]]
        found[rows[y]][columns[x]] = value if known is None else max(known, value)
    return found


@dataclass(frozen=True)
class _Bins:
    """The cells of a heat map along one setting."""

    names: tuple[str, ...]
    starts: tuple[float, ...]  # the least value of each bin but the first

    def place(self, value: float) -> int:
        """Return the number of the bin of a value."""
        return bisect_right(self.starts, value)


def _bins(parameter: Parameter, at_most: int) -> _Bins:
    """Return a bin for each of a few values, or bins of equal shares of the range; ``also`` has one of its own."""
    levels = sorted(dict.fromkeys(parameter.levels))
    if parameter.kind == "int" and parameter.high - parameter.low < MOST_LEVELS:
        levels = list(range(int(parameter.low), int(parameter.high) + 1))
    if 0 < len(levels) <= MOST_LEVELS:
        return _Bins(tuple(_distinct(levels)), tuple(levels[1:]))
    if levels:
        edges = [levels[k * len(levels) // at_most] for k in range(at_most)] + levels[-1:]
    else:
        own = replace(parameter, also=None)
        edges = sorted({own.at(k / at_most) for k in range(at_most + 1)})
    names = [f"{low} to {high}" for low, high in pairwise(_distinct(edges))]
    starts = edges[1:-1]
    if parameter.also is not None and parameter.also < edges[0]:
        names, starts = [*_distinct([parameter.also]), *names], [edges[0], *starts]
    elif parameter.also is not None:
        names, starts = [*names, *_distinct([parameter.also])], [*starts, parameter.also]
    return _Bins(tuple(names), tuple(starts))


def _distinct(values: Sequence[float]) -> list[str]:
    """Return different values as different texts, whole numbers in full: an axis joins bins of one name."""
    for digits in range(3, 18):
        texts = [str(value) if isinstance(value, int) else f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(values):
            break
    return texts


@dataclass(frozen=True)
class _HeatMapCells:
    """Objectives of the compared trials by the bins of two settings."""

    settings: tuple[str, str]  # labels of the settings of columns and of rows
    columns: _Bins
    rows: _Bins
    values: dict[tuple[int, int], list[float]]  # by row and column; without cells that no trial is in

    def text(self, record: SweepRecord, row: int, column: int, between: str) -> str:
        """Return mean and number of trials of a cell; empty if there are none."""
        found = self.values.get((row, column))
        return f"{record.shown(fmean(found))}{between}({len(found)})" if found else ""


def _numeric_settings(record: SweepRecord) -> list[str]:
    """Return the settings whose values are all numbers, the most important first."""
    space, shares = record.plan.space, record.importance
    return sorted((name for name in shares if space.by_name[name].is_numeric), key=lambda name: -shares[name])


def _cells(record: SweepRecord) -> _HeatMapCells | None:
    """Return the cells of the two most important numeric settings."""
    top, compared = _numeric_settings(record)[:2], record.compared
    if len(top) < 2:
        return None
    at_most = min(MOST_BINS, max(2, math.isqrt(len(compared.trials) // 2)))  # about two trials a cell
    across, down = (record.plan.space.by_name[name] for name in top)
    columns, rows = _bins(across, at_most), _bins(down, at_most)
    values = defaultdict[tuple[int, int], list[float]](list)
    for trial, value in zip(compared.trials, compared.values, strict=True):
        x, y = (parameter.find(trial.point[parameter.name]) for parameter in (across, down))
        values[rows.place(y), columns.place(x)].append(value)
    names = labels(record.plan.space)
    return _HeatMapCells((names[top[0]], names[top[1]]), columns, rows, dict(values))


def heat_map(record: SweepRecord) -> Plot | Remark | None:
    """Return a heat map of the mean objective over the two most important numeric settings."""
    cells, compared = _cells(record), record.compared
    if cells is None:
        known = [as_text(name) for name in _numeric_settings(record)]
        found = f"only {known[0]} has" if known else "none has"
        reason = f"A heat map needs two settings whose values are numbers; of those searched, {found} such values."
        return Remark(reason, "note") if record.importance else None
    numbers = range(len(cells.rows.names)), range(len(cells.columns.names))
    figure = go.Figure(
        go.Heatmap(
            z=[[fmean(cells.values[y, x]) if (y, x) in cells.values else None for x in numbers[1]] for y in numbers[0]],
            x=cells.columns.names,
            y=cells.rows.names,
            text=[[cells.text(record, y, x, "<br>") for x in numbers[1]] for y in numbers[0]],
            texttemplate="%{text}",
            textfont={"color": "#0e1319"},
            colorscale=_LIGHT_SCALE,
            showscale=False,
            xgap=2,
            ygap=2,
            hovertemplate="%{x}, %{y}: %{text}<extra></extra>",
        )
    )
    figure.update_xaxes(title=cells.settings[0], type="category", showgrid=False)
    figure.update_yaxes(title=cells.settings[1], type="category", showgrid=False, automargin=True)
    note = (
        f"Mean {record.objective_words} of the trials in each cell and, in parentheses, their number: "
        f"{count(len(compared.trials), 'trial')} after {count(compared.epoch, 'epoch')}, one seed each. A cell "
        "includes its lower ends; empty ones have no trial. The table has the same numbers."
    )
    return plot("Heat map of two settings", note, figure, height=130 + 56 * len(cells.rows.names))


def table_of_heat_map(record: SweepRecord) -> Table | None:
    """Return the cells of the heat map as a table, the largest values of the second setting first, as it is drawn."""
    cells = _cells(record)
    if cells is None:
        return None
    columns = range(len(cells.columns.names))
    rows: list[tuple[CellValue, ...]] = [
        (name, *(numeric(cells.text(record, y, x, " ")) for x in columns)) for y, name in enumerate(cells.rows.names)
    ]
    across = (ColumnHead(name, above=cells.settings[0]) for name in cells.columns.names)
    return Table("", (cells.settings[1], *across), tuple(reversed(rows)))


@dataclass(frozen=True)
class _ParallelAxis:
    """An axis of the plot of all settings together; places are shares of its length."""

    label: str
    places: list[float]  # of each trial
    texts: list[str]  # of each trial
    ticks: list[tuple[float, str]]

    @classmethod
    def of_numbers(cls, label: str, values: Sequence[float], *, is_log: bool = False) -> _ParallelAxis:
        shown = [math.log10(value) for value in values] if is_log else list(values)
        low, high = min(shown), max(shown)
        ticks = [low] if low == high else [low + (high - low) * quarter / 4 for quarter in range(5)]
        if is_log:
            ticks = sorted({low, *range(math.ceil(low), math.floor(high) + 1), high})
        texts, names = ([f"{10**at if is_log else at:.3g}" for at in each] for each in (shown, ticks))
        return cls(label, _scaled(shown, low, high), texts, [*zip(_scaled(ticks, low, high), names, strict=True)])

    @classmethod
    def of_choices(cls, label: str, values: Sequence[Any]) -> _ParallelAxis:
        known = list(dict.fromkeys(values))
        if all(isinstance(value, int | float) for value in known):
            known.sort()
        places = dict(zip(known, _scaled(range(len(known)), 0, len(known) - 1), strict=True))
        ticks = [(place, str(value)) for value, place in places.items()]
        return cls(label, [places[value] for value in values], [*map(str, values)], ticks)


def _scaled(values: Sequence[float], low: float, high: float) -> list[float]:
    return [0.5 if low == high else (value - low) / (high - low) for value in values]


def _parallel_axes(record: SweepRecord) -> list[_ParallelAxis]:
    """Return the axes of the objective and of all settings, these by their labels."""
    axes = [_ParallelAxis.of_numbers(record.objective_words, record.compared.values)]
    for name, label in sorted(labels(record.plan.space).items(), key=lambda each: each[1]):
        drawn = _Drawn.of(record.plan.space.by_name[name], label, record.compared)
        if drawn.is_choice:
            axes.append(_ParallelAxis.of_choices(label, drawn.values))
        else:
            axes.append(_ParallelAxis.of_numbers(label, drawn.values, is_log=drawn.is_log))
    return axes


def parallel(record: SweepRecord) -> Plot | None:
    """Return a parallel-coordinates plot of all compared trials, coloured by the objective, which is the first axis."""
    compared = record.compared
    if len(compared.trials) < 2:
        return None
    axes = _parallel_axes(record)
    names = [axis.label if len(axis.label) < 20 else f"{axis.label[:17]}..." for axis in axes]
    places = list(range(len(axes)))
    rule = {"type": "line", "y0": 0, "y1": 1, "line": {"color": "#888", "width": 1}, "layer": "below"}
    tick = {"showarrow": False, "xanchor": "right", "xshift": -4, "font": {"size": 11}}
    note = (
        f"{len(compared.trials)} trials after {count(compared.epoch, 'epoch')}, a line each, coloured by the objective."
    )
    made = plot("All settings together", note, go.Figure(), height=420)
    colours = sample_colorscale(SCALE, axes[0].places)
    # No figure of plotly checks these: its check of 150 lines takes half a second.
    made.figure["data"] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": places,
            "y": [axis.places[trial] for axis in axes],
            "customdata": [[name, axis.texts[trial]] for name, axis in zip(names, axes, strict=True)],
            "hovertemplate": "%{customdata[0]}: %{customdata[1]}<extra></extra>",
            "line": {"color": colour, "width": 1.6},
            "opacity": 0.75,
            "showlegend": False,
        }
        for trial, colour in enumerate(colours)
    ]
    last = 6 * len(names[-1])  # pixels of a name that a narrow page slants
    made.figure["layout"] |= {
        "margin": {"l": 40, "r": max(24, last), "t": 40, "b": 60},
        "xaxis": {
            "tickmode": "array",
            "tickvals": places,
            "ticktext": names,
            "range": [-0.2, len(axes) - 0.8],
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {"range": [-0.08, 1.08], "visible": False, "fixedrange": True},
        "hovermode": "closest",
        "shapes": [{"x0": place, "x1": place, **rule} for place in places],
        "annotations": [
            {"x": place, "y": at, "text": text, **tick} for place, axis in enumerate(axes) for at, text in axis.ticks
        ],
    }
    return made


OF_SETTINGS = (importance_bars, slices, contour, heat_map, table_of_heat_map, parallel)
"""The plots, and the table of one of them, of what the settings do, in their order on the page."""


def _shown(parameter: Parameter, value: object) -> object:
    return as_text(value) if parameter.kind == "choice" else value


def _is_log(parameter: Parameter) -> bool:
    return (parameter.kind == "loguniform" or parameter.log) and min(parameter.ends) > 0


def _axis(parameter: Parameter) -> dict[str, object]:
    """Return axis settings of a parameter: order of choices, linear or log scale."""
    if parameter.kind == "choice":
        shown = [as_text(choice) for choice in parameter.choices]
        return {"type": "category", "categoryorder": "array", "categoryarray": shown}
    if not _is_log(parameter):
        return {"type": "linear"}
    is_wide = max(parameter.ends) >= 100 * min(parameter.ends)  # else there would be a tick or two
    return {"type": "log", "dtick": 1} if is_wide else {"type": "log", "dtick": "D2", "tickformat": "~g"}
