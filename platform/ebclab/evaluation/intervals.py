"""Accuracies with their uncertainty: confidence interval over test images, standard deviation over probe seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, stdev

from torch import Tensor

from ebclab.evaluation.answers import Answers
from ebclab.interval import Interval


@dataclass(frozen=True)
class Score:
    """An accuracy with its confidence interval, its standard deviation and the protocol of its measurement."""

    name: str  # probe that measured it, e.g. "knn", "linear"
    value: float  # accuracy in [0, 1]; the mean over the probe's seeds if there are several
    low: float  # lower end of the 95 % Wilson interval over test images
    # upper end of it. The interval accounts for the sampling of test images with the encoder fixed, not for the
    # variance of pretraining
    high: float
    num_images: int  # number of test images
    detail: str  # the protocol in words
    seeds: tuple[int, ...] = ()  # seeds of the probe; empty if the probe has no randomness
    per_seed: tuple[float, ...] = ()  # accuracy for each of ``seeds``, in order
    # standard deviation over seeds of the probe (n - 1 in the divisor); None if there are fewer than two
    std: float | None = None
    # per-image correctness; None if the score was read from a file
    answers: Answers | None = field(default=None, compare=False, repr=False)

    @property
    def interval(self) -> Interval:
        """The accuracy with its interval and its standard deviation."""
        return Interval(self.value, self.low, self.high, self.num_images, std=self.std)


def score_of(name: str, right: Tensor, keys: Tensor, *, detail: str, seeds: Sequence[int] = ()) -> Score:
    """Return the score of a probe by its answers (P, n) bool, one row for each of ``seeds``, or a single one."""
    values: list[float] = right.double().mean(dim=1).tolist()
    value, std = mean_and_std(values)
    low, high = wilson_interval(value, right.shape[1])
    per_seed = tuple(values) if seeds else ()
    return Score(name, value, low, high, right.shape[1], detail, tuple(seeds), per_seed, std, Answers.of(right, keys))


def mean_and_std(values: list[float]) -> tuple[float, float | None]:
    """Return the mean and the standard deviation (n - 1 in the divisor; None for a single value)."""
    return fmean(values), stdev(values) if len(values) > 1 else None


def wilson_interval(accuracy: float, num_images: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's (1927) score interval: all p with |accuracy - p| <= z sqrt(p (1 - p) / num_images).

    Args:
        accuracy: Fraction of correct predictions, in [0, 1].
        num_images: Number of images that it was measured on, at least 1.
        confidence: Confidence level, in (0, 1).
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 + z * z / num_images
    centre = (accuracy + z * z / (2 * num_images)) / shrink
    spread = (accuracy * (1 - accuracy) / num_images + (z / (2 * num_images)) ** 2) ** 0.5
    half = z * spread / shrink
    return max(0.0, centre - half), min(1.0, centre + half)
