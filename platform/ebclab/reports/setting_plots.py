"""Plots of the settings: importance, slices, contour of two settings, parallel coordinates."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
from optuna.visualization import plot_contour, plot_parallel_coordinate
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from ebclab.document.document import Plot
from ebclab.formatting import count
from ebclab.reports.comparable import LEAST_TRIALS, Footing, as_text, is_inside, labels, study_of
from ebclab.reports.curve_plots import tick_format
from ebclab.reports.plots import BLUE, ORANGE, SCALE, epoch_ticks, plot
from ebclab.reports.reading import SweepRecord
from ebclab.sweeps.space.parameter import Parameter

_COLUMNS = 3


def importance_bars(record: SweepRecord, compared: Footing, shares: Mapping[str, float]) -> Plot | None:
    """Return a bar chart of the share of the objective's variance that each setting explains."""
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
    measured = [trial for trial in record.order if is_inside(space, trial)]
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
        bar = {"title": {"text": "epochs"}, "thickness": 12, **epoch_ticks(measured)}
        figure.update_layout(coloraxis={"colorscale": SCALE, "colorbar": bar})
        note += "; dark dots were stopped early and might have come further"
    return plot("Slices", f"{note}.", figure, height=height)


def contour(record: SweepRecord, compared: Footing, shares: Mapping[str, float]) -> Plot | None:
    """Return a contour plot of the objective over the two most important settings."""
    if len(shares) < 2:
        return None
    names = labels(record.plan.space)
    top = sorted(shares, key=lambda name: -shares[name])[:2]
    figure = plot_contour(study_of(record.plan.space, compared), params=[names[name] for name in top])
    for trace in figure.data:
        if trace.type == "contour":
            trace.update(colorscale=SCALE, reversescale=False, opacity=0.9)
            trace.colorbar.update(title={"text": record.objective_words, "side": "right"}, thickness=12)
        else:
            trace.update(marker={"color": ORANGE, "size": 7, "line": {"color": "#ffffff", "width": 1}})
    note = (
        f"The two most important settings, {len(compared.trials)} trials after {count(compared.epoch, 'epoch')} "
        "(dots); the surface between them is interpolated, all other settings vary freely."
    )
    return plot("Two settings together", note, figure, height=420)


def parallel(record: SweepRecord, compared: Footing) -> Plot | None:
    """Return a parallel-coordinates plot of all compared trials; ranges can be selected with the mouse."""
    if len(compared.trials) < 2:
        return None
    figure = plot_parallel_coordinate(study_of(record.plan.space, compared), target_name=record.objective_words)
    for trace in figure.data:
        if trace.mode == "lines":  # from the objective's axis, scaled to [0, 1], through the others
            trace.update(line={"color": sample_colorscale(SCALE, trace.y[0])[0], "width": 1.6}, opacity=0.75)
        else:
            trace.update(marker={"colorscale": SCALE, "reversescale": False, "colorbar": {"thickness": 12}})
    figure.update_annotations(font={"size": 11, "color": None})
    note = (
        f"{len(compared.trials)} trials after {count(compared.epoch, 'epoch')}, a line each, coloured by the objective."
    )
    made = plot("All settings together", note, figure, height=420)
    made.figure["layout"]["margin"] = {"l": 40, "r": 24, "t": 40, "b": 60}
    return made


def why_no_importance(compared: Footing) -> str:
    """Return the reason why no importance was computed."""
    num_trials = len(compared.trials)
    if num_trials < LEAST_TRIALS:
        return f"Importance needs at least {LEAST_TRIALS} comparable trials; there are {num_trials}."
    return "All comparable trials measured the same: no setting explains any difference."


def _shown(parameter: Parameter, value: object) -> object:
    return as_text(value) if parameter.kind == "choice" else value


def _axis(parameter: Parameter) -> dict[str, object]:
    """Return axis settings of a parameter: order of choices, linear or log scale."""
    if parameter.kind == "choice":
        shown = [as_text(choice) for choice in parameter.choices]
        return {"type": "category", "categoryorder": "array", "categoryarray": shown}
    is_log = (parameter.kind == "loguniform" or parameter.log) and min(parameter.ends) > 0
    return {"type": "log", "dtick": 1} if is_log else {"type": "linear"}
