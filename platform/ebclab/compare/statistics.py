"""Robust statistics over tasks and seeds (Agarwal et al., 2021), as pure functions.

x_{t,r}: the score of run r on task t. A method has one array (..., R) of runs for each task; leading axes, e.g. that
of bootstrap samples, are kept in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Scores = np.ndarray[Any, np.dtype[np.float64]]
Runs = Sequence[Scores]
"""Scores of a method's runs, one array per task."""


def interquartile_mean(runs: Runs) -> Scores:
    """Return the mean of the middle half of all scores, over tasks and seeds.

    Agarwal et al. (2021), section 4.3. The floor(n / 4) lowest and highest scores are trimmed, as by
    ``scipy.stats.trim_mean``.

    Args:
        runs: Scores, (..., R) for each task.

    Returns:
        The means, (...).
    """
    ordered = np.sort(np.concatenate(list(runs), axis=-1), axis=-1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))


def probability_of_improvement(one: Runs, other: Runs) -> Scores:
    """Return the probability that a run of ``one`` scores higher than a run of ``other``, on a random task.

        P = mean over t of mean over r, s of [x_{t,r} > y_{t,s}] + [x_{t,r} = y_{t,s}] / 2

    Agarwal et al. (2021), eq. 2: the Mann-Whitney U statistic divided by the number of pairs.

    Args:
        one: Scores of the first method, (..., R) for each task.
        other: Scores of the second method, (..., S), on the same tasks in the same order.

    Returns:
        The probabilities, (...).
    """
    shares = []
    for mine, theirs in zip(one, other, strict=True):
        gaps = np.sign(mine[..., :, None] - theirs[..., None, :])
        shares.append((gaps.mean(axis=(-2, -1)) + 1) / 2)
    return np.asarray(np.mean(shares, axis=0))


def score_distribution(runs: Runs, levels: Scores) -> Scores:
    """Return the fraction of runs that score above each level, averaged over tasks: a performance profile.

        F(tau) = mean over t of mean over r of [x_{t,r} > tau]

    Agarwal et al. (2021), eq. 1.

    Args:
        runs: Scores, (R,) for each task.
        levels: tau, (L,).

    Returns:
        F, (L,).
    """
    shares = np.stack([(task[:, None] > levels[None, :]).mean(axis=0) for task in runs])
    return np.asarray(shares.mean(axis=0))


def chance_of_spread(draws: Sequence[float], gains: Sequence[float]) -> tuple[float, float] | None:
    """Return how much one setting's score differs by its seed, and the chance of these draws if all were equally good.

    Draws are of one seed, so that what a seed does to all settings alike is no noise of theirs. The rest is known from
    two settings that were run with the same seeds: half the variance of their difference. The chance is that of an F
    test of the variance of the draws against it.

    Args:
        draws: One score of each draw, all with one seed.
        gains: Differences of two settings, one for each of several seeds.

    Returns:
        The standard deviation and the chance; None if either variance is of fewer than two values, or if both are 0.
    """
    from scipy import special  # imported here: a tenth of a second

    if len(draws) < 2 or len(gains) < 2:
        return None
    spread, noise = float(np.std(draws, ddof=1)), float(np.std(gains, ddof=1) / np.sqrt(2))
    if noise == 0:
        return (0.0, 0.0) if spread else None
    return noise, float(special.fdtrc(len(draws) - 1, len(gains) - 1, (spread / noise) ** 2))


def bootstrap_interval(
    statistic: Callable[..., Scores],
    *methods: Runs,
    generator: np.random.Generator,
    draws: int = 2_000,
    chance: float = 0.05,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic, with runs resampled within each task.

    Stratified: every task keeps its number of runs. Methods are resampled independently of each other. With few runs
    per task the interval is too narrow; benchmarks/comparison_coverage.py measures by how much.

    Args:
        statistic: Function of the runs of each method that keeps a leading axis.
        *methods: Runs of each method, (R,) for each task.
        draws: Number of bootstrap samples.
        chance: Two-sided error probability of the interval.
    """
    again = [
        [task[generator.integers(0, len(task), (draws, len(task)))] for task in runs] for runs in methods
    ]  # (draws, R) for each task
    low, high = np.quantile(statistic(*again), [chance / 2, 1 - chance / 2])
    return float(low), float(high)
