"""Statistics over tasks and seeds that no single lucky run can move (Agarwal et al., 2021), as pure functions.

x_{t,r}: the score of run r on task t. A method has one array (..., R) of runs for each task; leading axes, such as
that of samples of a bootstrap, stay in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Scores = np.ndarray[Any, np.dtype[np.float64]]
Runs = Sequence[Scores]
"""The scores of a method's runs, an array for each task."""


def interquartile_mean(runs: Runs) -> Scores:
    """Return the mean of the middle half of all scores, over tasks and seeds: a quarter is cut at either end.

    Agarwal et al. (2021), section 4.3. Whole runs are cut, floor(n / 4) at either end, as by ``scipy.stats.trim_mean``.

    Args:
        runs: Scores, (..., R) for each task.

    Returns:
        (...): the means.
    """
    ordered = np.sort(np.concatenate(list(runs), axis=-1), axis=-1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))


def probability_of_improvement(one: Runs, other: Runs) -> Scores:
    """Return the chance that a run of ``one`` scores higher than a run of ``other``, on a task drawn at random.

        P = mean over t of mean over r, s of [x_{t,r} > y_{t,s}] + [x_{t,r} = y_{t,s}] / 2

    Agarwal et al. (2021), eq. 2: Mann and Whitney's U over the number of pairs.

    Args:
        one: Scores of the first method, (..., R) for each task.
        other: Scores of the second method, (..., S), on the same tasks in the same order.

    Returns:
        (...): the chances.
    """
    shares = []
    for mine, theirs in zip(one, other, strict=True):
        gaps = np.sign(mine[..., :, None] - theirs[..., None, :])
        shares.append((gaps.mean(axis=(-2, -1)) + 1) / 2)
    return np.asarray(np.mean(shares, axis=0))


def score_distribution(runs: Runs, levels: Scores) -> Scores:
    """Return the share of runs that score more than each level, the mean over tasks: a performance profile.

        F(tau) = mean over t of mean over r of [x_{t,r} > tau]

    Agarwal et al. (2021), eq. 1.

    Args:
        runs: Scores, (R,) for each task.
        levels: tau, (L,).

    Returns:
        (L,): F.
    """
    shares = np.stack([(task[:, None] > levels[None, :]).mean(axis=0) for task in runs])
    return np.asarray(shares.mean(axis=0))


def bootstrap_interval(
    statistic: Callable[..., Scores],
    *methods: Runs,
    generator: np.random.Generator,
    draws: int = 2_000,
    chance: float = 0.05,
) -> tuple[float, float]:
    """Return the percentile interval of a statistic over runs drawn again, with replacement, within each task.

    Stratified: every task keeps its number of runs. Methods are drawn independently of each other. With few runs a
    task the interval is too narrow: benchmarks/comparison_coverage.py says how much.

    Args:
        statistic: Takes as many methods' runs as are given, and keeps a leading axis.
        *methods: Runs of each method, (R,) for each task.
        generator: Source of the draws.
        draws: Number of samples.
        chance: Probability that the interval misses, both ends together.
    """
    again = [
        [task[generator.integers(0, len(task), (draws, len(task)))] for task in runs] for runs in methods
    ]  # (draws, R) for each task
    low, high = np.quantile(statistic(*again), [chance / 2, 1 - chance / 2])
    return float(low), float(high)
