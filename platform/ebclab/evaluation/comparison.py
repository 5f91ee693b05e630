"""Confidence intervals of the means of several confirmed settings, and of the differences between them.

The best of C settings is chosen by the same means that are reported. The intervals of all C means, and those of all
C (C - 1) / 2 differences, therefore have simultaneous coverage (Bonferroni): in at least 95 of 100 sweeps all of them
contain their true values, including that of the winning settings. Measured on simulated sweeps of known truth
(``benchmarks/coverage.py``), the coverage is 94.5 to 100 of 100, highest with few seeds or a few hundred images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from ebclab.evaluation.answers import Answers, table_of
from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval, quantile
from ebclab.interval import Interval

CHANCE = 0.05
"""Probability that at least one interval of a family does not contain its true value."""

ENOUGH_SEEDS = 5
"""With fewer seeds, the page states the limits of the conclusion."""


class Measurements(NamedTuple):
    """Measured values of the runs of one setting."""

    by_seed: dict[int, float]
    answers: dict[int, Answers]  # by seed; empty if not known for all runs, or if the images differ

    @classmethod
    def of(cls, seeds: Sequence[int], values: Sequence[float], answers: Sequence[Answers | None]) -> Measurements:
        """Return the measurements of runs: a seed, a value and optional answers for each."""
        known = {seed: each for seed, each in zip(seeds, answers, strict=False) if each is not None}
        is_whole = len(known) == len(seeds) and len({each.images for each in known.values()}) == 1
        return cls(dict(zip(seeds, values, strict=True)), known if is_whole else {})


def mean_and_interval(measured: Measurements, num_compared: int, *, is_rate: bool) -> Interval:
    """Return mean, standard deviation and 95 % interval of the mean; of one seed, there is no interval.

    With answers, the interval is that of `seeds_and_images` and accounts for other seeds and other images; without,
    it is Student's t interval and accounts for other seeds only.

    ``num_compared`` means have simultaneous coverage; the interval of a rate is clipped to [0, 1].

    Raises:
        ValueError: A value is NaN or infinite.
    """
    values = list(measured.by_seed.values())
    if lost := {seed: value for seed, value in measured.by_seed.items() if not math.isfinite(value)}:
        raise ValueError(f"by_seed: a mean is over finite numbers, got {lost}; leave these seeds out")
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean)
    std, chance = stdev(values), CHANCE / num_compared
    if measured.answers:
        table = table_of(list(measured.answers.values()))
        return Interval(mean, *mean_interval(table, chance), table.shape[1], std=std)
    if _tie(values):  # no variance to estimate an interval from
        return Interval(mean, std=std)
    low, high = _students(values, chance)
    return Interval(mean, max(low, 0.0) if is_rate else low, min(high, 1.0) if is_rate else high, std=std)


def difference(one: Measurements, other: Measurements, num_compared: int) -> Interval:
    """Return how much higher the mean of ``one`` is than that of ``other``, with its 95 % interval.

    The comparison is paired by seed and, with answers, by image; intervals of all differences of ``num_compared``
    settings have simultaneous coverage.
    """
    return difference_with_chance(one, other, CHANCE / max(1, num_compared * (num_compared - 1) // 2))


def difference_with_chance(one: Measurements, other: Measurements, chance: float) -> Interval:
    """Return how much higher the mean of ``one`` is than that of ``other``, with an interval of a given error rate.

    ``chance`` is ``CHANCE`` divided by the number of differences with simultaneous coverage.
    """
    return contrast_with_chance([(1.0, one), (-1.0, other)], chance)


def contrast_with_chance(terms: Sequence[tuple[float, Measurements]], chance: float) -> Interval:
    """Return a weighted sum of means, e.g. a difference of differences, paired as in ``difference``."""
    settings = [setting for _, setting in terms]
    seeds = [seed for seed in settings[0].by_seed if all(seed in each.by_seed for each in settings)]
    if not seeds:
        mean = sum(weight * fmean(each.by_seed.values()) for weight, each in terms)
        return Interval(mean, open="no seed in common")
    sums = [sum(weight * each.by_seed[seed] for weight, each in terms) for seed in seeds]
    mean = sum(weight * fmean(each.by_seed[seed] for seed in seeds) for weight, each in terms)
    if len(seeds) < 2:
        return Interval(mean, open="one seed")
    if all(each.answers for each in settings):
        if len({each.answers[seeds[0]].images for each in settings}) > 1:
            return Interval(mean, open="scored on other images")
        tables = [(weight, table_of([each.answers[seed] for seed in seeds])) for weight, each in terms]
        added, taken = (
            sum((abs(weight) * table for weight, table in tables if (weight > 0) == up), 0.0 * tables[0][1])
            for up in (True, False)
        )
        low, high = difference_interval(added, taken, chance)
        most = sum(max(weight, 0.0) for weight, _ in terms)
        least = sum(min(weight, 0.0) for weight, _ in terms)
        return Interval(mean, max(low, least), min(high, most), added.shape[1])
    if _tie(sums, scale=max(map(abs, settings[0].by_seed.values()))):  # equal sums are no proof of zero variance
        return Interval(mean, open="the same at every seed: no interval")
    return Interval(mean, *_students(sums, chance))


def _tie(values: Sequence[float], scale: float = 0.0) -> bool:
    """Return whether values are equal up to rounding errors of their own magnitude or of ``scale``."""
    return max(values) - min(values) <= 1e-9 * max(scale, *map(abs, values))


def _students(values: Sequence[float], chance: float) -> tuple[float, float]:
    half = quantile(chance, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return fmean(values) - half, fmean(values) + half


def in_words(num_compared: int, num_seeds: int, images: int | None) -> str:
    """Return an explanation of the intervals of a page; without ``images``, they cover seeds only."""
    over = (
        f"how far the score would move with other seeds and with other images in place of these {images:,}"
        if images
        else "how far the score would move with other seeds; other images may move it as much, and that is not in it"
    )
    best = (
        f" The winner was chosen as the best of {num_compared}; so that its luck is not taken for a gain, the "
        "intervals are wide enough to hold together: in at least 95 of 100 such sweeps those of all means contain the "
        "true values; so do, counted apart, those of all differences, and those of each table of test images."
        if num_compared > 1
        else ""
    )
    sure = "It is made to contain the true value in at least 95 of 100 cases"
    if images:
        sure += "; with few seeds or a few hundred images it does in up to 99, so it is rather too wide than too short"
    return f"A 95 % interval says {over}. {sure}.{best} {few_seeds(num_seeds)}".strip()


def few_seeds(num_seeds: int) -> str:
    """Return a caveat about the number of seeds; empty if there are at least ``ENOUGH_SEEDS``."""
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
