"""What a sweep cost and what it did not have to pay for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebclab.reports.reading import SweepRecord
from ebclab.sweeps.trial import Trial


@dataclass(frozen=True)
class Cost:
    """What trials used.

    Attributes:
        search_hours: Training time of the trials that searched, one after the other.
        confirm_hours: The same of the runs that confirmed.
        gpus_per_trial: GPUs of a trial, or the share of one.
        price: Of one GPU for one hour; None when nobody said.
    """

    search_hours: float
    confirm_hours: float
    gpus_per_trial: float
    price: float | None

    @property
    def trial_hours(self) -> float:
        """Hours of all trials."""
        return self.search_hours + self.confirm_hours

    @property
    def gpu_hours(self) -> float:
        """Hours of GPUs, shares counted as shares."""
        return self.trial_hours * self.gpus_per_trial

    @property
    def money(self) -> float | None:
        """GPU-hours times their price."""
        return None if self.price is None else self.gpu_hours * self.price


def cost_of(record: SweepRecord, price: float | None) -> Cost:
    """Return what a sweep has cost so far; idle machines and lost turns are in no log and not counted.

    Args:
        record: The sweep.
        price: Of one GPU-hour, in any currency.
    """
    search, confirm = record.log.of_kind("search"), record.log.of_kind("confirm")
    return Cost(_hours(search), _hours(confirm), record.gpus_per_trial, price)


def _hours(trials: Sequence[Trial]) -> float:
    return sum(trial.seconds for trial in trials) / 3600


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats: higher than every one at most as expensive, cheapest first.

    Args:
        points: Pairs of seconds and objective.
    """
    line: list[tuple[float, float]] = []
    for seconds, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not line or value > line[-1][1]:
            line.append((seconds, value))
    return line
