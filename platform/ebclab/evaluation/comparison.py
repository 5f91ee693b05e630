"""How sure the means of several confirmed settings are, and the differences between them.

The best of C settings was chosen by the very means that are then shown. So the intervals of all C means, and those of
all C (C - 1) / 2 differences, are wide enough to hold together (Bonferroni): in 95 of 100 sweeps or more every one of
them contains its true value, hence also that of whichever settings won. Simulated sweeps of which the truth is known
(``benchmarks/coverage.py``) say how often: in 94.5 to 100 of 100, most with few seeds or a few hundred images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from ebclab.evaluation.answers import Answers, table_of
from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval, quantile

CHANCE = 0.05
"""Probability that an interval of a family misses."""

ENOUGH_SEEDS = 5
"""With fewer, the page says what so few seeds cannot tell."""


class Measurements(NamedTuple):
    """What the runs of some settings measured.

    Attributes:
        by_seed: One value per seed.
        answers: Which images each run was right about, by seed; empty where that is not known of all runs, or not about
            the same images.
    """

    by_seed: dict[int, float]
    answers: dict[int, Answers]

    @classmethod
    def of(cls, seeds: Sequence[int], values: Sequence[float], answers: Sequence[Answers | None]) -> Measurements:
        """Return the measurements of runs: a seed, a value and perhaps answers of each."""
        known = {seed: each for seed, each in zip(seeds, answers, strict=False) if each is not None}
        is_whole = len(known) == len(seeds) and len({each.images for each in known.values()}) == 1
        return cls(dict(zip(seeds, values, strict=True)), known if is_whole else {})


class MeanInterval(NamedTuple):
    """A mean over seeds and how sure it is.

    Attributes:
        mean: The mean.
        std: Standard deviation over seeds (n - 1 in the divisor); None for one seed.
        low: Lower end of the 95 % interval of the mean; None for one seed, and for equal values without answers.
        high: Upper end of the interval; None likewise.
        images: Number of images whose sampling the interval accounts for; None where it is over seeds only.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    images: int | None


def mean_and_interval(measured: Measurements, num_compared: int, *, is_rate: bool) -> MeanInterval:
    """Return mean, standard deviation and 95 % interval of the mean.

    With answers the interval is that of `seeds_and_images`, for other seeds and other images; without, it is Student's,
    for other seeds only.

    Args:
        measured: What the runs measured.
        num_compared: C: intervals of so many means hold together.
        is_rate: The values are shares: the interval is cut at 0 and 1.
    """
    values = list(measured.by_seed.values())
    mean = fmean(values)
    if len(values) < 2:
        return MeanInterval(mean, None, None, None, None)
    std, chance = stdev(values), CHANCE / num_compared
    if measured.answers:
        table = table_of(list(measured.answers.values()))
        return MeanInterval(mean, std, *mean_interval(table, chance), table.shape[1])
    if _tie(values):  # no seed says how far another one might lie
        return MeanInterval(mean, std, None, None, None)
    low, high = _students(values, chance)
    return MeanInterval(mean, std, max(low, 0.0) if is_rate else low, min(high, 1.0) if is_rate else high, None)


@dataclass(frozen=True)
class Difference:
    """How much better some settings are than others.

    Attributes:
        mean: Difference of the means over the seeds in common; over all seeds where there is none.
        low: Lower end of its 95 % interval; None where there is none.
        high: Upper end of the interval; None likewise.
        images: Number of images whose sampling the interval accounts for; None where it is over seeds only.
        open: Why there is no interval; empty where there is one.
    """

    mean: float
    low: float | None
    high: float | None
    images: int | None = None
    open: str = ""

    @property
    def is_noise(self) -> bool | None:
        """The interval contains 0; None when there is no interval."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high

    @property
    def verdict(self) -> str:
        """Return within noise, beyond noise, or why neither can be said."""
        return self.open or ("within noise" if self.is_noise else "beyond noise")


def difference(one: Measurements, other: Measurements, num_compared: int) -> Difference:
    """Return how much higher the mean of ``one`` is than that of ``other``, with its 95 % interval.

    Runs with the same seed are compared with each other, and so are answers about the same image.

    Args:
        one: What the runs of some settings measured.
        other: The same of the other settings.
        num_compared: C: the intervals of all differences between so many settings hold together.
    """
    return difference_with_chance(one, other, CHANCE / max(1, num_compared * (num_compared - 1) // 2))


def difference_with_chance(one: Measurements, other: Measurements, chance: float) -> Difference:
    """Return how much higher the mean of ``one`` is than that of ``other``, with an interval of a stated chance.

    Args:
        one: What the runs of some settings measured.
        other: The same of the other settings.
        chance: Probability that the interval misses: ``CHANCE`` over the number of differences that hold together.
    """
    seeds = [seed for seed in one.by_seed if seed in other.by_seed]
    if not seeds:
        mean = fmean(one.by_seed.values()) - fmean(other.by_seed.values())
        return Difference(mean, None, None, open="no seed in common")
    mean = fmean(one.by_seed[seed] for seed in seeds) - fmean(other.by_seed[seed] for seed in seeds)
    if len(seeds) < 2:
        return Difference(mean, None, None, open="one seed")
    if one.answers and other.answers:
        if one.answers[seeds[0]].images != other.answers[seeds[0]].images:
            return Difference(mean, None, None, open="scored on other images")
        first, second = (table_of([part.answers[seed] for seed in seeds]) for part in (one, other))
        return Difference(mean, *difference_interval(first, second, chance), first.shape[1])
    gaps = [one.by_seed[seed] - other.by_seed[seed] for seed in seeds]
    if _tie(gaps, scale=max(map(abs, one.by_seed.values()))):  # a tie between seeds is no certainty
        return Difference(mean, None, None, open="the same at every seed: no interval")
    return Difference(mean, *_students(gaps, chance))


def _tie(values: Sequence[float], scale: float = 0.0) -> bool:
    """Return whether values are equal but for rounding: theirs, or that of numbers as large as ``scale``."""
    return max(values) - min(values) <= 1e-9 * max(scale, *map(abs, values))


def _students(values: Sequence[float], chance: float) -> tuple[float, float]:
    """Return Student's interval of the mean, which misses with probability ``chance``."""
    half = quantile(chance, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return fmean(values) - half, fmean(values) + half


def in_words(num_compared: int, num_seeds: int, images: int | None) -> str:
    """Return what the intervals of a page say, for a person.

    Args:
        num_compared: Number of settings that were compared.
        num_seeds: Seeds of the winner.
        images: Number of images that the intervals account for; None where they are over seeds only.
    """
    over = (
        f"how far the score would move with other seeds and with other images in place of these {images:,}"
        if images
        else "how far the score would move with other seeds; other images may move it as much, and that is not in it"
    )
    best = (
        f" The winner was chosen as the best of {num_compared}; so that its luck is not taken for a gain, the "
        "intervals are wide enough to hold together: in at least 95 of 100 such sweeps all of them contain the true "
        "value."
        if num_compared > 1
        else ""
    )
    sure = "It is made to contain the true value in at least 95 of 100 cases"
    if images:
        sure += "; with few seeds or a few hundred images it does in up to 99, so it is rather too wide than too short"
    return f"A 95 % interval says {over}. {sure}.{best} {few_seeds(num_seeds)}".strip()


def few_seeds(num_seeds: int) -> str:
    """Return what so few seeds cannot tell; empty with enough of them."""
    if num_seeds >= ENOUGH_SEEDS:
        return ""
    if num_seeds < 2:
        return "One seed says nothing about another one: no conclusion is possible."
    chance = 2.0 ** (1 - num_seeds)
    return (
        f"{num_seeds} seeds are few: were one setting ahead at every one of them, that would happen by chance in "
        f"{chance:.0%} of such sweeps (two-sided sign test; below 5 % takes 6 seeds). The intervals rest on seeds that "
        "scatter like a normal distribution, which so few cannot show; read them as a hint and add --seeds."
    )
