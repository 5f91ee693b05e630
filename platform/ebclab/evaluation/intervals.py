"""Accuracies with their uncertainty: an interval over test images, a spread over seeds of the probe."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import NormalDist, fmean, stdev

from ebclab.evaluation.answers import Answers


@dataclass(frozen=True)
class Score:
    """An accuracy with its interval, its spread and the protocol that measured it.

    Attributes:
        name: Probe that measured it ("knn", "linear").
        value: Accuracy in [0, 1]; the mean over the probe's seeds where there are several.
        low: Lower end of the 95 % Wilson interval over test images.
        high: Upper end of it. The interval says how far another test set of this size might lie, with the encoder as
            it is; it says nothing about pretraining again.
        num_images: Test images.
        detail: The protocol in words.
        seeds: Seeds of the probe, empty when the probe has no randomness.
        per_seed: Accuracy for each of ``seeds``, in their order.
        std: Standard deviation over seeds of the probe (n - 1 in the divisor); none when there are fewer than two.
        answers: Which images were answered right; none in what was read back from a file.
    """

    name: str
    value: float
    low: float
    high: float
    num_images: int
    detail: str
    seeds: tuple[int, ...] = ()
    per_seed: tuple[float, ...] = ()
    std: float | None = None
    answers: Answers | None = field(default=None, compare=False, repr=False)


def make_score(
    name: str, accuracies: list[float], *, num_images: int, detail: str, seeds: tuple[int, ...] = ()
) -> Score:
    """Return the `Score` of ``accuracies``: one a seed, or a single one and no ``seeds``."""
    value, std = mean_and_std(accuracies)
    low, high = wilson_interval(value, num_images)
    return Score(name, value, low, high, num_images, detail, seeds, tuple(accuracies) if seeds else (), std)


def mean_and_std(values: list[float]) -> tuple[float, float | None]:
    """Return the mean and the standard deviation (n - 1 in the divisor; none for a single value)."""
    return fmean(values), stdev(values) if len(values) > 1 else None


def wilson_interval(accuracy: float, num_images: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's (1927) score interval: all p with |accuracy - p| <= z sqrt(p (1 - p) / num_images).

    Args:
        accuracy: Share of right answers, in [0, 1].
        num_images: Images it was measured on, at least 1.
        confidence: Chance, in (0, 1), that such an interval holds the true share.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 + z * z / num_images
    centre = (accuracy + z * z / (2 * num_images)) / shrink
    spread = (accuracy * (1 - accuracy) / num_images + (z / (2 * num_images)) ** 2) ** 0.5
    half = z * spread / shrink
    return max(0.0, centre - half), min(1.0, centre + half)
