"""Compare confirmed settings: is a difference larger than the noise of seeds?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from scipy import stats

NOISE_RULE = (
    "Two settings are within noise of each other when Welch's 95 % interval of the difference of their means over "
    "seeds contains 0. The winner was chosen as the best of these means, which flatters it; nothing corrects for that."
)


@dataclass(frozen=True)
class Difference:
    """How much better some settings are than others.

    Attributes:
        mean: Difference of the means over seeds.
        low: Lower end of Welch's 95 % interval; None when either has fewer than two seeds.
        high: Upper end of the interval; None likewise.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def is_noise(self) -> bool | None:
        """The interval contains 0; None when there is no interval."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high


def difference(one: Sequence[float], other: Sequence[float]) -> Difference:
    """Return how much higher the mean of ``one`` is than that of ``other``, with Welch's 95 % interval.

    Args:
        one: Values, one per seed.
        other: Values of the other settings, one per seed; their number may differ.
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
