"""Which settings won, by how much, and whether the difference is more than seeds make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

from scipy import stats

from ebclab.reports.reading import SweepRecord
from ebclab.sweeps.proposals import BASELINE, ConfirmProposals, mean_and_interval
from ebclab.sweeps.space.check import own_settings

NOISE_RULE = (
    "Two settings are within noise of each other when Welch's 95 % interval of the difference of their means over "
    "seeds contains 0. The winner was chosen as the best of these means, which flatters it; nothing corrects for that."
)


@dataclass(frozen=True)
class Candidate:
    """Settings that were run again with other seeds.

    Attributes:
        source: Trial of the search that they come from, or ``baseline``.
        settings: By dotted key.
        seeds: Of the runs that finished.
        values: Their objectives.
        seeds_asked: How many runs there are to be.
        mean: Over seeds.
        low: Lower end of Student's 95 % interval of the mean; None of one seed alone.
        high: Upper end.
        is_start: They are the settings that the search started from.
    """

    source: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    seeds_asked: int
    mean: float
    low: float | None
    high: float | None
    is_start: bool

    @property
    def words(self) -> str:
        """What a person calls them."""
        if self.source == BASELINE:
            return "the starting settings"
        return f"trial {self.source}" + (", the starting settings" if self.is_start else "")


@dataclass(frozen=True)
class Difference:
    """How much better one candidate is than another.

    Attributes:
        mean: Difference of the means.
        low: Lower end of Welch's 95 % interval; None when a candidate has fewer than two seeds.
        high: Upper end.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def is_noise(self) -> bool | None:
        """The interval contains 0; None when there is none."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high


def candidates(record: SweepRecord) -> list[Candidate]:
    """Return the confirmed settings, the winner first: most seeds, then best mean, as the sweep itself chooses."""
    confirmed = ConfirmProposals(record.plan, record.log)
    start = own_settings(record.plan.space, record.plan.config)
    found = []
    for source, by_seed in confirmed.results(record.log).items():
        if not by_seed:
            continue
        values = list(by_seed.values())
        interval = mean_and_interval(values, is_rate=confirmed.is_rate)
        settings = confirmed.settings[source]
        found.append(
            Candidate(
                source=source,
                settings=settings,
                seeds=tuple(by_seed),
                values=tuple(values),
                seeds_asked=confirmed.num_seeds,
                mean=fmean(values),
                low=interval["low"],
                high=interval["high"],
                is_start=settings == start,
            )
        )
    return sorted(found, key=lambda entry: (len(entry.values), entry.mean), reverse=True)


def difference(one: Sequence[float], other: Sequence[float]) -> Difference:
    """Return how much higher the mean of ``one`` is than that of ``other``, with Welch's 95 % interval.

    Args:
        one: Values, one a seed.
        other: Values of the other settings; their number may differ.
    """
    mean = fmean(one) - fmean(other)
    if len(one) < 2 or len(other) < 2:
        return Difference(mean, None, None)
    first, second = variance(one) / len(one), variance(other) / len(other)
    if first + second == 0:
        return Difference(mean, mean, mean)
    freedom = (first + second) ** 2 / (first**2 / (len(one) - 1) + second**2 / (len(other) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * float(first + second) ** 0.5
    return Difference(mean, mean - half, mean + half)
