"""Statistics over tasks and seeds that no single lucky run can move (Agarwal et al., 2021), as pure functions.

x_{t,r}: the score of run r on task t; a method has one array of runs for each task. Each statistic takes such a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import trim_mean

Runs = Sequence[np.ndarray[Any, np.dtype[np.float64]]]
"""The scores of a method's runs, an array for each task."""


def interquartile_mean(runs: Runs) -> float:
    """Return the mean of the middle half of all scores, over tasks and seeds: a quarter is cut at either end.

    Agarwal et al. (2021), section 4.3; ``scipy.stats.trim_mean`` cuts whole runs, floor(n / 4) at either end.
    """
    return float(trim_mean(np.concatenate(list(runs)), 0.25))


def probability_of_improvement(one: Runs, other: Runs) -> float:
    """Return the chance that a run of ``one`` scores higher than a run of ``other``, on a task drawn at random.

        P = mean over t of mean over r, s of [x_{t,r} > y_{t,s}] + [x_{t,r} = y_{t,s}] / 2

    Agarwal et al. (2021), eq. 2: Mann and Whitney's U over the number of pairs.

    Args:
        one: Scores of the first method.
        other: Scores of the second method on the same tasks, in the same order.
    """
    shares = []
    for mine, theirs in zip(one, other, strict=True):
        gaps = np.asarray(mine)[:, None] - np.asarray(theirs)[None, :]
        shares.append(float(((gaps > 0) + 0.5 * (gaps == 0)).mean()))
    return float(np.mean(shares))


def score_distribution(runs: Runs, levels: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the share of runs that score more than each level, the mean over tasks: a performance profile.

        F(tau) = mean over t of mean over r of [x_{t,r} > tau]

    Agarwal et al. (2021), eq. 1.
    """
    shares = np.stack([(np.asarray(task)[:, None] > levels[None, :]).mean(axis=0) for task in runs])
    return np.asarray(shares.mean(axis=0), dtype=np.float64)


def bootstrap_interval(
    statistic: Callable[..., float],
    *methods: Runs,
    generator: np.random.Generator,
    draws: int = 2_000,
    chance: float = 0.05,
) -> tuple[float, float]:
    """Return the percentile interval of a statistic over runs drawn again, with replacement, within each task.

    Stratified: every task keeps its number of runs. Methods are drawn independently of each other. With few runs a
    task the interval is too narrow: benchmarks/comparison_coverage.py says how much.

    Args:
        statistic: Takes as many methods' runs as are given.
        *methods: Runs of each method.
        generator: Source of the draws.
        draws: Number of samples.
        chance: Probability that the interval misses, both ends together.
    """
    values = []
    for _ in range(draws):
        again = [[task[generator.integers(0, len(task), len(task))] for task in runs] for runs in methods]
        values.append(statistic(*again))
    low, high = np.quantile(values, [chance / 2, 1 - chance / 2])
    return float(low), float(high)
