"""The plots of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ebclab.comparisons.findings import ComparisonFindings, MeasuredSweep
from ebclab.comparisons.plan import Task
from ebclab.comparisons.statistics import CONFIDENCE, TuningCurve, score_distribution
from ebclab.config.yaml_text import JsonObject
from ebclab.document.document import Plot
from ebclab.formatting import PROBES, count
from ebclab.interval import Interval
from ebclab.reports.comparable import as_text
from ebclab.reports.plots import (
    BLUE,
    COLOURS,
    GREY,
    SCALE,
    add_references,
    error_bars,
    in_panels,
    plot,
    range_of,
    reference_line,
)
from ebclab.runs.references import Name

MARKS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star")
_SETTINGS: dict[Literal["default", "tuned"], str] = {"default": GREY, "tuned": BLUE}
_COLUMNS = 3  # panels side by side
_FEW = 10  # epochs or draws; with more, plotly's default ticks are integers


def plots(findings: ComparisonFindings) -> list[Plot]:
    """Return the plots that have data, the most important first."""
    made = [
        tuned_differences(findings),
        default_and_tuned(findings),
        tuning_curves(findings, by_seconds=False),
        tuning_curves(findings, by_seconds=True),
        score_by_batch_size(findings),
        learning(findings, by_seconds=False),
        learning(findings, by_seconds=True),
        improvement_matrix(findings),
        profile(findings),
        what_matters(findings),
    ]
    return [each for each in made if each is not None]


def _style(findings: ComparisonFindings, method: str) -> tuple[str, str]:
    """Return colour and marker of a method; with more methods than colours, colours are reused with other markers."""
    place = findings.request.methods.index(method)
    return COLOURS[place % len(COLOURS)], MARKS[(place + place // len(COLOURS)) % len(MARKS)]


def _named(findings: ComparisonFindings, task: Task) -> str:
    return as_text(findings.named(task))


class _Panels:
    """A figure of sweeps with a panel for each task; all lines of a method have one entry in the legend."""

    def __init__(self, findings: ComparisonFindings, found: Sequence[MeasuredSweep], x: str, *, few: bool) -> None:
        self._findings, self._tasks = findings, list(dict.fromkeys(each.task for each in found))
        self._columns = min(len(self._tasks), _COLUMNS)
        rows = -(-len(self._tasks) // self._columns)
        self.height = 130 + 270 * rows
        self.figure = make_subplots(
            rows,
            self._columns,
            subplot_titles=[_named(findings, task) for task in self._tasks],
            shared_yaxes="all",
            horizontal_spacing=0.04,
            vertical_spacing=0.16 / rows,
        )
        for row in range(1, rows + 1):
            self.figure.update_yaxes(title="held-out score", tickformat=".1%", row=row, col=1)
        self.figure.update_xaxes(title=x, **({"dtick": 1} if few else {}))

    def _place(self, task: Task) -> dict[str, int]:
        row, column = divmod(self._tasks.index(task), self._columns)
        return {"row": row + 1, "col": column + 1}

    def add_line(self, each: MeasuredSweep, x: Any, y: Any) -> None:
        """Draw a line of a method in the panel of its task."""
        colour, mark = _style(self._findings, each.method)
        self.figure.add_scatter(
            x=x,
            y=y,
            mode="lines+markers",
            name=each.method,
            legendgroup=each.method,
            showlegend=all(line.name != each.method for line in self.figure.data),
            line={"color": colour, "width": 2},
            marker={"symbol": mark, "size": 5},
            **self._place(each.task),
        )

    def add_curve(self, each: MeasuredSweep, curve: TuningCurve, by_seconds: bool) -> None:
        """Draw the median of the best draw with its band, and over draws also the score of the default settings."""
        colour, _ = _style(self._findings, each.method)
        seconds = sum(draw.seconds for draw in each.draws) / len(each.draws)
        x = [n * seconds if by_seconds else n for n in curve.trials]
        beside: JsonObject = {"mode": "lines", "showlegend": False, "legendgroup": each.method}
        beside |= self._place(each.task)
        known, most = curve.known_until, max(curve.median)
        upper = [high if n <= known else most for n, high in zip(curve.trials, curve.high, strict=True)]
        self.figure.add_scatter(
            x=[*x, *reversed(x)],
            y=[*upper, *reversed(curve.low)],
            fill="toself",
            fillcolor=colour,
            opacity=0.13,
            line={"width": 0},
            hoverinfo="skip",
            **beside,
        )
        self.add_line(each, x, curve.median)
        if each.default_draw is not None and not by_seconds:
            self.figure.add_scatter(
                x=[x[0], x[-1]],
                y=[each.default_draw.score] * 2,
                line={"color": colour, "width": 1, "dash": "dot"},
                hovertemplate=f"{each.method}, default settings: %{{y:.1%}}<extra></extra>",
                **beside,
            )

    def plot(self, title: str, note: str) -> Plot:
        """Return the plot."""
        return in_panels(plot(title, note, self.figure, height=self.height))


def tuning_curves(findings: ComparisonFindings, *, by_seconds: bool) -> Plot | None:
    """Plot the median best score after n draws, with its band, over draws or over the seconds that they take."""
    found = [(each, each.curve) for each in findings.searches if each.curve]
    if not found:
        return None
    few = not by_seconds and max(len(each.draws) for each, _ in found) <= _FEW
    x = "seconds of training" if by_seconds else "random draws"
    panels = _Panels(findings, [each for each, _ in found], x, few=few)
    for each, curve in found:
        panels.add_curve(each, curve, by_seconds)
    panels.figure.update_xaxes(type="log" if by_seconds else "linear")
    values = [score for _, curve in found for score in curve.median]
    values += [each.default_draw.score for each, _ in found if each.default_draw]
    room = max(max(values) - min(values), 0.01)
    # a band often begins at 0, or at a diverged draw; a range with all of it would compress the lines
    panels.figure.update_yaxes(range=[max(0.0, min(values) - room / 2), min(1.0, max(values) + room / 10)])
    over = "the seconds that n draws take on average" if by_seconds else "n draws"
    note = (
        f"Line: the median of the best held-out score after {over}. Band: holds the whole curve with {CONFIDENCE:.0%}, "
        "whatever the distribution of scores; where it is cut at the top, the draws say nothing about an upper end. "
        "Panels span the lines; a band may continue below."
    )
    note += findings.shared_gpu if by_seconds else " Dotted: the default settings."
    return panels.plot("What tuning is worth, by seconds" if by_seconds else "What tuning is worth, by draws", note)


def default_and_tuned(findings: ComparisonFindings) -> Plot | None:
    """Plot the accuracies of default and of tuned settings, with their intervals."""
    found = [each for each in findings.searches if each.accuracy()]
    if not found:
        return None
    figure = go.Figure()
    values = [Interval(value.mean) for _, _, value in findings.references_at]
    for settings, colour in _SETTINGS.items():
        shown = [(each, value) for each in found if (value := each.accuracy(settings))]
        values += [value for _, value in shown]
        figure.add_scatter(
            x=[value.mean for _, value in shown],
            y=[f"{each.method} · {_named(findings, each.task)}" for each, _ in shown],
            error_x=error_bars([value for _, value in shown], 1.5),
            mode="markers",
            orientation="h",
            offsetgroup=settings,
            name=settings,
            marker={"color": colour, "size": 9, "symbol": "circle" if settings == "tuned" else "circle-open"},
        )
    names = {(each.method, each.task): place for place, each in enumerate(found)}
    references = [
        (name, names[method, task], value.mean)
        for (task, name, value), methods in findings.references_at.items()
        for method in methods
        if (method, task) in names
    ]
    add_references(figure, references)
    spanned = range_of(values, least_margin=0.01, most=1.0)
    figure.update_xaxes(title=f"{PROBES[findings.request.metric]} accuracy", tickformat=".1%", range=spanned)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(scattermode="group")
    note = f"Means over {findings.request.seeds} seeds that no search used, on the test images; bars are 95 % each."
    if findings.references_at:
        note += " What is left of a line scores less than features that no one trained."
    return plot("Default and tuned", note, figure, height=150 + 26 * len(found))


def tuned_differences(findings: ComparisonFindings) -> Plot | None:
    """Plot the differences between tuned methods by seed, with their intervals and the margin."""
    gaps = [gap for gap in findings.gaps_of("tuned") if gap.difference.low is not None]
    if not gaps:
        return None
    figure = go.Figure()
    names = [f"{gap.name} · {_named(findings, gap.one.task)}" for gap in gaps]
    seeds = [100 * gain for gap in gaps for gain in gap.by_seed.values()]
    rows = [name for gap, name in zip(gaps, names, strict=True) for _ in gap.by_seed]
    labels = [f"seed {seed}" for gap in gaps for seed in gap.by_seed]
    figure.add_scatter(
        x=seeds, y=rows, text=labels, mode="markers", name="one seed",
        marker={"color": GREY, "size": 6, "symbol": "circle-open"},
    )  # fmt: skip
    figure.add_scatter(
        x=[100 * gap.difference.mean for gap in gaps],
        y=names,
        error_x=error_bars([100.0 * gap.difference for gap in gaps], 2),
        mode="markers",
        name="mean, interval",
        marker={"color": BLUE, "size": 10, "symbol": "diamond"},
    )
    margin = findings.request.margin
    figure.add_vrect(x0=-margin, x1=margin, fillcolor=GREY, opacity=0.18, line_width=0)
    figure.add_vline(x=0, line={"color": GREY, "width": 1})
    figure.update_xaxes(title="difference of accuracies, points")
    figure.update_yaxes(autorange="reversed", automargin=True)
    note = (
        f"All intervals hold together with 95 %. Shaded: the margin of {findings.request.margin_in_words}, below which "
        "a difference does not matter; whether it is larger is judged by two one-sided tests, narrower than the bars."
    )
    return plot("Differences between tuned methods", note, figure, height=150 + 30 * len(gaps))


def score_by_batch_size(findings: ComparisonFindings) -> Plot | None:
    """Plot the accuracies over the batch size; None if there are fewer than two batch sizes."""
    found = [each for each in findings.searches if each.accuracy()]
    if len({each.task.batch_size for each in found}) < 2:
        return None
    figure = go.Figure()
    lines = dict.fromkeys((each.method, each.task.dataset, each.task.repeat) for each in found)
    for method, dataset, repeat in lines:
        mine = [
            each for each in found if (each.method, each.task.dataset, each.task.repeat) == (method, dataset, repeat)
        ]
        colour, mark = _style(findings, method)
        several = len({place[1:] for place in lines}) > 1
        name = f"{method}, {as_text(dataset)}, repeat {repeat + 1}" if several else method
        for settings in reversed(_SETTINGS):
            is_tuned = settings == "tuned"
            values = [(each, value) for each in mine if (value := each.accuracy(settings))]
            figure.add_scatter(
                x=[each.task.batch_size for each, _ in values],
                y=[value.mean for _, value in values],
                error_y=error_bars([value for _, value in values], 1.2) | {"visible": is_tuned},
                mode="lines+markers",
                name=name if is_tuned else f"{name}, default",
                line={"color": colour, "dash": "solid" if is_tuned else "dot", "width": 2 if is_tuned else 1},
                marker={"symbol": mark, "size": 8 if is_tuned else 5},
                legendgroup=name,
            )
    _add_references(figure, findings)
    sizes = sorted({each.task.batch_size for each in found})
    figure.update_xaxes(title="batch size", type="log", tickvals=sizes, ticktext=list(map(str, sizes)))
    figure.update_yaxes(title=f"{PROBES[findings.request.metric]} accuracy", tickformat=".1%")
    note = "Lines: tuned at each batch size, with 95 % intervals. Dotted: default settings."
    return plot("Accuracy by batch size", note, figure, height=440)


def _add_references(figure: go.Figure, findings: ComparisonFindings) -> None:
    """Draw raw pixels and untrained encoders over the batch sizes, which they do not depend on."""
    lines: dict[tuple[str, Name, int, tuple[str, ...]], list[tuple[int, float]]] = {}
    for (task, name, value), methods in findings.references_at.items():
        lines.setdefault((task.dataset, name, task.repeat, methods), []).append((task.batch_size, value.mean))
    several = len({key[:1] + key[2:] for key in lines}) > 1
    for (dataset, name, repeat, methods), points in lines.items():
        whose = f", {as_text(dataset)}, {', '.join(methods)}, repeat {repeat + 1}" if several else ""
        figure.add_scatter(
            x=[size for size, _ in points],
            y=[value for _, value in points],
            mode="lines+markers",
            marker={"size": 3},
            name=name + whose,
            line=reference_line(name),
        )


def learning(findings: ComparisonFindings, *, by_seconds: bool) -> Plot | None:
    """Plot the held-out score of the tuned settings over epochs or seconds, the mean over seeds."""
    found = [each for each in findings.searches if each.tuned and each.tuned.curves]
    if not found:
        return None
    x = "seconds of training" if by_seconds else "epochs"
    few = not by_seconds and max(each.planned.config.training.epochs for each in found) <= _FEW
    panels = _Panels(findings, found, x, few=few)
    for each in found:
        curves = each.tuned.curves if each.tuned else ()
        if length := min(len(curve.epochs) for curve in curves):
            along = [curve.seconds if by_seconds else curve.epochs for curve in curves]
            x_mean = np.mean([line[:length] for line in along], axis=0)
            panels.add_line(each, x_mean, np.mean([curve.scores[:length] for curve in curves], axis=0))
    note = f"Means over the seeds of the tuned settings.{_falls(found)}{by_seconds * findings.shared_gpu}"
    return panels.plot("Learning, by seconds" if by_seconds else "Learning, by epochs", note)


def _falls(found: Sequence[MeasuredSweep]) -> str:
    """Return a sentence about the learning rate, after a space; empty if all methods keep it."""
    kept = [each.method for each in found if each.planned.config.optimizer.schedule == "constant"]
    if len(kept) == len(found):
        return ""
    but = f", except of {', '.join(dict.fromkeys(kept))}" if kept else ""
    return f" The learning rate falls towards each run's own end{but}."


def improvement_matrix(findings: ComparisonFindings) -> Plot | None:
    """Plot the probabilities of improvement as a matrix; None for fewer than three methods."""
    if len(findings.whole) < 3:
        return None
    names = list(findings.whole)
    chances = {pair: chance.mean for pair, chance in findings.improvements.items()}
    figure = _matrix(chances, rows=names, columns=names, between=" over ", digits=".2f")
    figure.update_xaxes(title="over this method", side="bottom")
    note = "The chance that a run of the row's method scores higher than a run of the column's, over all tasks."
    return plot("Chance of improvement", note, figure, height=150 + 44 * len(names))


def _matrix(
    shares: Mapping[tuple[str, str], float], *, rows: Sequence[str], columns: Sequence[str], between: str, digits: str
) -> go.Figure:
    """Return a heatmap of values in [0, 1] by row and column; cells without a value are empty."""
    values = [[shares.get((row, column)) for column in columns] for row in rows]
    text = [["" if value is None else format(value, digits) for value in row] for row in values]
    hover = f"%{{y}}{between}%{{x}}: %{{z:{digits}}}<extra></extra>"
    figure = go.Figure(
        go.Heatmap(
            z=values, x=columns, y=rows, text=text, texttemplate="%{text}", zmin=0, zmax=1, colorscale=SCALE,
            hovertemplate=hover,
        )
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def profile(findings: ComparisonFindings) -> Plot | None:
    """Plot the performance profile: the fraction of runs that score above a level, over all tasks."""
    if len(findings.whole) < 2:
        return None
    scores = np.concatenate([task for method in findings.whole for task in findings.scores_of(method)])
    levels = np.linspace(float(scores.min()) - 0.005, float(scores.max()) + 0.005, 200)
    figure = go.Figure()
    for method in findings.whole:
        figure.add_scatter(
            x=levels,
            y=score_distribution(findings.scores_of(method), levels),
            mode="lines",
            name=method,
            line={"color": _style(findings, method)[0], "width": 2, "shape": "hv"},
        )
    figure.update_xaxes(title=f"{PROBES[findings.request.metric]} accuracy", tickformat=".1%")
    figure.update_yaxes(title="share of runs above it", tickformat=".0%")
    over = f"{count(len(findings.tasks), 'task')} and {count(findings.request.seeds, 'seed')}"
    note = f"Over {over}, tuned settings: further right is better."
    return plot("Performance profile", note, figure, height=360)


def what_matters(findings: ComparisonFindings) -> Plot | None:
    """Plot the importance of each setting for each method: the mean fraction of variance over tasks."""
    shares: dict[tuple[str, str], list[float]] = {}
    for each in findings.searches:
        for name, share in (each.importance or {}).items():
            shares.setdefault((name, each.method), []).append(share)
    if not shares:
        return None
    settings = list(dict.fromkeys(name for name, _ in shares))
    methods = [method for method in findings.request.methods if any(method == each for _, each in shares)]
    means = {place: float(np.mean(values)) for place, values in shares.items()}
    figure = _matrix(means, rows=settings, columns=methods, between=", ", digits=".0%")
    note = (
        "Share of the variance of the held-out score over the space that a setting explains alone (fANOVA), scaled to "
        "100 % in sum, mean over tasks; rough with few draws. Empty: not searched for this method."
    )
    return plot("What had to be tuned", note, figure, height=150 + 34 * len(settings))
