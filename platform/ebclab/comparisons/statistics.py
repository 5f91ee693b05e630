"""Robust statistics over tasks and seeds (Agarwal et al., 2021), and tuning curves, as pure functions.

x_{t,r}: the score of run r on task t. A method has one array (..., R) of runs for each task; leading axes, e.g. that
of bootstrap samples, are kept in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from opda.nonparametric import EmpiricalDistribution

Scores = np.ndarray[Any, np.dtype[np.float64]]
Runs = Sequence[Scores]
"""Scores of a method's runs, one array per task."""


def interquartile_mean(runs: Runs) -> Scores:
    """Return the mean of the middle half of all scores, over tasks and seeds.

    Agarwal et al. (2021), section 4.3. The floor(n / 4) lowest and highest scores are trimmed, as by
    ``scipy.stats.trim_mean``. Runs (..., R) of each task give means (...).
    """
    ordered = np.sort(np.concatenate(list(runs), axis=-1), axis=-1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))


def probability_of_improvement(one: Runs, other: Runs) -> Scores:
    """Return the probability that a run of ``one`` scores higher than a run of ``other``, on a random task.

        P = mean over t of mean over r, s of [x_{t,r} > y_{t,s}] + [x_{t,r} = y_{t,s}] / 2

    Agarwal et al. (2021), eq. 2: the Mann-Whitney U statistic divided by the number of pairs. Runs (..., R) and
    (..., S) on the same tasks in the same order give probabilities (...).
    """
    shares = []
    for mine, theirs in zip(one, other, strict=True):
        gaps = np.sign(mine[..., :, None] - theirs[..., None, :])
        shares.append((gaps.mean(axis=(-2, -1)) + 1) / 2)
    return np.asarray(np.mean(shares, axis=0))


def score_distribution(runs: Runs, levels: Scores) -> Scores:
    """Return the fraction of runs that score above each level, averaged over tasks: a performance profile.

        F(tau) = mean over t of mean over r of [x_{t,r} > tau]

    Agarwal et al. (2021), eq. 1. ``levels`` are tau, (L,), and the result F, (L,).
    """
    shares = np.stack([(task[:, None] > levels[None, :]).mean(axis=0) for task in runs])
    return np.asarray(shares.mean(axis=0))


def chance_of_spread(draws: Sequence[float], gains: Sequence[float]) -> tuple[float, float] | None:
    """Return how much one setting's score differs by its seed, and the chance of these draws if all were equally good.

    Draws are of one seed, so that what a seed does to all settings alike is no noise of theirs. The rest is known from
    two settings that were run with the same seeds: half the variance of their difference. The chance is that of an F
    test of the variance of the draws against it.

    ``draws`` are their scores, all with one seed, and ``gains`` the differences of two settings, one for each of
    several seeds. None if either variance is of fewer than two values, or if both are 0.
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
) -> tuple[float, float] | tuple[None, None]:
    """Return the percentile bootstrap interval of a statistic, with runs resampled within each task.

    None in place of its ends where all samples agree: such runs say nothing of others.

    Stratified: every task keeps its number of runs. Methods are resampled independently of each other. With few runs
    per task the interval is too narrow; benchmarks/comparison_coverage.py measures by how much.

    ``statistic`` is a function of the runs of each method that keeps a leading axis, that of the bootstrap samples.
    """
    again = [
        [task[generator.integers(0, len(task), (draws, len(task)))] for task in runs] for runs in methods
    ]  # (draws, R) for each task
    low, high = np.quantile(statistic(*again), [chance / 2, 1 - chance / 2])
    return (float(low), float(high)) if low < high else (None, None)


CONFIDENCE = 0.8
"""Probability that a band contains the complete curve."""
_SIMULATED = 0  # seed of the simulation that calibrates the simultaneous bands


@dataclass(frozen=True)
class TuningCurve:
    """The median of the best score among n draws, n = 1 ... N."""

    trials: tuple[int, ...]  # n
    median: tuple[float, ...]  # the estimate
    low: tuple[float, ...]  # lower end of the band
    high: tuple[float, ...]  # upper end of the band; 1 where the draws give no upper bound
    expected: tuple[float, ...]  # unbiased estimate (U-statistic) of the mean of the best score among n draws

    @property
    def known_until(self) -> int:
        """The largest n for which the band has an upper bound below 1; 0 if there is none."""
        return max((n for n, high in zip(self.trials, self.high, strict=True) if high < 1.0), default=0)


@cache
def _band(num_draws: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lower and the upper end of the band of F between the order statistics of draws.

    Entry k is for scores from the k-th smallest draw up to the next; entry 0 for those below all draws.
    """
    places = np.arange(1, num_draws + 1, dtype=np.float64)
    low, _, high = EmpiricalDistribution.confidence_bands(
        places,
        CONFIDENCE,
        0.0,
        num_draws + 1.0,
        method="ld_equal_tailed",
        generator=np.random.default_rng(_SIMULATED),
        n_jobs=1,
    )
    between = np.arange(0, num_draws + 1) + 0.5
    return tuple(map(float, low.cdf(between))), tuple(map(float, high.cdf(between)))


def tuning_curve(scores: Sequence[float]) -> TuningCurve:
    """Return the best score after n random draws of a method's settings, with its band, from scores in [0, 1].

    Scores of draws are independent with an unknown distribution F. The best of n draws has the distribution F^n, so its
    median is the quantile 0.5^(1/n) of F. A simultaneous confidence band of F (Learned-Miller and DeStefano, 2008)
    gives a simultaneous band of the curve, for any F (Lourie, Cho and He, 2024, arXiv:2311.09480). It requires
    independent draws: no adaptive search, no early stopping, and a number of draws fixed in advance. Ties, e.g. of
    diverged draws, make the band conservative.
    """
    if not scores or not all(0.0 <= score <= 1.0 for score in scores):
        raise ValueError(f"scores in [0, 1] are needed, got {list(scores)}")
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    count = len(ordered)
    lowest, highest = _band(count)
    trials = np.arange(1, count + 1)
    levels = 0.5 ** (1.0 / trials)
    estimate = EmpiricalDistribution(ordered, a=0.0, b=1.0)
    return TuningCurve(
        tuple(map(int, trials)),
        tuple(map(float, estimate.quantile_tuning_curve(trials))),
        tuple(_quantile(ordered, highest, level) for level in levels),
        tuple(_quantile(ordered, lowest, level) for level in levels),
        tuple(map(float, estimate.u_tuning_curve(trials))),
    )


def _quantile(ordered: Scores, cdf: Sequence[float], level: float) -> float:
    """Return the smallest score in [0, 1] at which ``cdf`` reaches ``level``; 1 if no draw does.

    ``cdf`` has the values of F below all draws, which are ``ordered``, and from each of them up to the next.
    """
    if cdf[0] >= level:
        return 0.0
    reached = (score for score, value in zip(ordered, cdf[1:], strict=True) if value >= level)
    return float(next(reached, 1.0))
