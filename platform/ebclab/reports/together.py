"""Compare several sweeps: check whether they are comparable, and rank them, also at a common budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import plotly.graph_objects as go

from ebclab.config import to_mapping
from ebclab.config.experiment import flat
from ebclab.data.holdout import CHOOSE_IMAGES
from ebclab.document.document import Plot
from ebclab.evaluation.comparison import difference
from ebclab.evaluation.objectives import MEASURED_WITH
from ebclab.interval import Interval
from ebclab.reports.comparable import as_text
from ebclab.reports.plots import BLUE, GREEN, GREY, ORANGE, plot
from ebclab.reports.reading import SweepRecord
from ebclab.reports.sweep_plots import tick_format
from ebclab.sweeps.results import ConfirmedSettings

_SHOULD_AGREE = (
    *(f"data.{name}" for name in CHOOSE_IMAGES),
    *(f"evaluation.{name}" for name in chain(*MEASURED_WITH.values())),
    "training.epochs",
)


OTHER_IMAGES = "scored on other images"
"""In place of an interval, where two sweeps were not scored on the same images."""


@dataclass(frozen=True)
class Row:
    """One of several sweeps."""

    record: SweepRecord
    at_equal_budget: float | None  # best objective within the common budget; None if nothing was measured by then
    trials_then: int  # number of trials within the common budget
    winner: ConfirmedSettings | None  # its best confirmed settings; None if nothing was confirmed
    # difference between the best row's winner and this one; None for the best row and without a winner
    to_best: Interval | None


def disagreements(records: Sequence[SweepRecord]) -> list[str]:
    """Return the settings that must agree for a comparison but do not, with the value of each sweep."""
    settings = [flat(to_mapping(record.plan.config)) for record in records]
    return [
        f"{key}: {', '.join(f'{each[key]} in {r.name}' for r, each in zip(records, settings, strict=True))}"
        for key in _SHOULD_AGREE
        if any(each[key] != settings[0][key] for each in settings)
    ]


def have_same_images(one: SweepRecord, other: SweepRecord) -> bool:
    """Return whether two sweeps are scored on the same images, by their settings and, if both know it, their digest."""
    first, second = one.plan.config.data, other.plan.config.data
    if first.digest and second.digest and first.digest != second.digest:
        return False
    return all(getattr(first, name) == getattr(second, name) for name in CHOOSE_IMAGES)


def budget_of(records: Sequence[SweepRecord]) -> float:
    """Return the common budget: the training time, in seconds, of the shortest search."""
    return min(sum(trial.seconds for trial in record.search) for record in records)


def rows(records: Sequence[SweepRecord]) -> list[Row]:
    """Return the sweeps sorted by their winner's mean; then those without a winner by their best at equal budget."""
    budget = budget_of(records)
    winners = [next(iter(record.confirmed), None) for record in records]
    compared = sum(len(record.confirmed) for record in records)
    sure = [(record, winner) for record, winner in zip(records, winners, strict=True) if winner]
    best = max(sure, key=lambda pair: pair[1].mean, default=None)
    sweeps = []
    for record, winner in zip(records, winners, strict=True):
        within = [value for seconds, value in best_so_far(record) if seconds <= budget * (1 + 1e-9)]
        gap = None
        if best and winner and winner is not best[1]:
            gap = difference(best[1].measured, winner.measured, compared)
            if not have_same_images(record, best[0]):
                gap = Interval(gap.mean, open=OTHER_IMAGES)
        sweeps.append(Row(record, within[-1] if within else None, len(within), winner, gap))

    def merit(row: Row) -> tuple[bool, float]:
        value = row.winner.mean if row.winner else row.at_equal_budget
        return row.winner is not None, float("-inf") if value is None else value

    return sorted(sweeps, key=merit, reverse=True)


_DASHES = ("solid", "dash", "dot")


def side_by_side(records: Sequence[SweepRecord]) -> Plot | None:
    """Return a plot with a line per sweep: the best objective so far against the cumulative training time."""
    figure = go.Figure()
    colours = [BLUE, ORANGE, GREEN, GREY]
    for place, record in enumerate(records):
        line = [(seconds, best) for seconds, best in best_so_far(record) if best is not None]
        if line:
            figure.add_scatter(
                x=[x for x, _ in line], y=[y for _, y in line], mode="lines+markers", name=as_text(record.name),
                line={"color": colours[place % 4], "shape": "hv", "width": 2.2, "dash": _DASHES[place // 4 % 3]},
            )  # fmt: skip
    if not figure.data:
        return None
    figure.update_xaxes(title="training time of all trials so far, seconds", rangemode="tozero")
    figure.update_yaxes(title=records[0].objective_words, tickformat=tick_format(records[0].objective))
    note = (
        "Trials one after the other in the order of their proposal, as if one ran at a time. One seed a trial: noisy."
    )
    return plot("Best so far against the budget", note, figure)


def best_so_far(record: SweepRecord) -> list[tuple[float, float | None]]:
    """Return, for each search trial, the cumulative training time in seconds and the best objective so far, or None."""
    line: list[tuple[float, float | None]] = []
    seconds, best = 0.0, None
    for trial in record.search:
        seconds += trial.seconds
        if trial.last and not trial.is_lost and math.isfinite(trial.last.objective):
            best = trial.last.objective if best is None else max(best, trial.last.objective)
        line.append((seconds, best))
    return line
