"""The cost of a sweep: hours, GPU-hours and money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebclab.reports.reading import SweepRecord
from ebclab.sweeps.trial import Trial


@dataclass(frozen=True)
class Cost:
    """Resources that the trials of a sweep used."""

    search_hours: float  # total training time of all search trials, in hours
    confirm_hours: float  # total training time of all confirming runs, in hours
    gpus_per_trial: float  # GPUs per trial, or a fraction of one, since the latest start or resume
    price: float | None  # price of one GPU for one hour; None if unknown
    gpu_hours: float  # GPU-hours of all trials; fractions of a GPU count as such

    @property
    def trial_hours(self) -> float:
        """Total training time of all trials, in hours."""
        return self.search_hours + self.confirm_hours

    @property
    def used_gpus(self) -> bool:
        """Whether trials use GPUs, or used some before the sweep was resumed."""
        return bool(self.gpus_per_trial or self.gpu_hours)

    @property
    def money(self) -> float | None:
        """GPU-hours times the price; None if the price is unknown."""
        return None if self.price is None else self.gpu_hours * self.price


def cost_of(record: SweepRecord, price: float | None) -> Cost:
    """Return the cost of a sweep so far; idle machines and lost turns are not in the log and not included.

    Args:
        price: Price of one GPU-hour, in any currency; None if unknown.
    """
    search, confirm = record.log.of_kind("search"), record.log.of_kind("confirm")
    gpu_hours = sum(trial.gpu_seconds for trial in (*search, *confirm)) / 3600
    return Cost(_hours(search), _hours(confirm), record.gpus_per_trial, price, gpu_hours)


def _hours(trials: Sequence[Trial]) -> float:
    return sum(trial.seconds for trial in trials) / 3600


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto front: points with a higher objective than all others that took no more time, fastest first.

    Args:
        points: Pairs of seconds and objective.
    """
    line: list[tuple[float, float]] = []
    for seconds, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not line or value > line[-1][1]:
            line.append((seconds, value))
    return line
