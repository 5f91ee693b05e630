"""Accuracies with their uncertainty: an interval over test images, a standard deviation over seeds of the probe.

Beside them the answers to single images, one bit each, for paired comparisons of runs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING

import numpy as np

from ebclab.config.yaml_text import JsonObject
from ebclab.evaluation.seeds_and_images import Table
from ebclab.interval import Interval

if TYPE_CHECKING:
    from torch import Tensor  # not imported: logs and reports hold answers, and import no torch


@dataclass(frozen=True)
class Answers:
    """Per-image correctness of one run."""

    images: str  # short hash of the keys of the images, in order; equal hashes mean the same images
    num_images: int
    right: tuple[str, ...]  # packed bits in base64, 1 if correct; one string for each time that the probe was trained

    def __post_init__(self) -> None:
        if self.num_images < 1 or not self.right:
            raise ValueError(f"answers about {self.num_images} images, {len(self.right)} times")
        for text in self.right:
            try:
                num_bytes = len(base64.b64decode(text, validate=True))
            except binascii.Error as error:
                raise ValueError(f"answers that are not base64, got {text!r:.40}") from error
            if num_bytes != (self.num_images + 7) // 8:
                raise ValueError(f"answers about {self.num_images} images in {num_bytes} bytes")

    @classmethod
    def of(cls, right: Tensor, keys: Tensor) -> Answers:
        """Return answers (P, n) bool, one row for each time that the probe was trained, as packed bits."""
        packed = np.packbits(right.cpu().numpy(), axis=1)
        return cls(images_key(keys), len(keys), tuple(base64.b64encode(row.tobytes()).decode() for row in packed))

    def to_mapping(self) -> JsonObject:
        """Return the answers as a dictionary of plain values."""
        return asdict(self) | {"right": list(self.right)}


def images_key(keys: Tensor) -> str:
    """Return a short hash of the keys (n,) of images; it depends on their order."""
    return hashlib.sha256(keys.contiguous().cpu().numpy().tobytes()).hexdigest()[:16]


def table_of(answers: Sequence[Answers]) -> Table:
    """Return the table of runs (rows) by images (columns): the fraction of probe trainings that were correct."""
    shares = []
    for each in answers:
        rows = [np.frombuffer(base64.b64decode(text), dtype=np.uint8) for text in each.right]
        bits = np.unpackbits(np.stack(rows), axis=1, count=each.num_images)  # (P, n)
        shares.append(bits.mean(axis=0, dtype=np.float64))
    return np.stack(shares)


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
    """Return Wilson's (1927) score interval: all p with |accuracy - p| <= z sqrt(p (1 - p) / num_images)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 + z * z / num_images
    centre = (accuracy + z * z / (2 * num_images)) / shrink
    spread = (accuracy * (1 - accuracy) / num_images + (z / (2 * num_images)) ** 2) ** 0.5
    half = z * spread / shrink
    return max(0.0, centre - half), min(1.0, centre + half)
