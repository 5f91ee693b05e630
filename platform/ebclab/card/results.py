"""Results of one group of a card: metrics, tables, plots and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ebclab.document.document import Picture, Plot, Table
from ebclab.evaluation.answers import Score, images_key, mean_and_std, score_of, table_of
from ebclab.evaluation.seeds_and_images import Table as ImageTable
from ebclab.evaluation.seeds_and_images import VarianceParts, quantile
from ebclab.interval import Interval

Unit = Literal["share", "nats", "plain"]
"""How a metric is displayed: a share in [0, 1] as a percentage, nats, or the plain value."""

Better = Literal["higher", "lower", "neither"]

_CHANCE = 0.05
_OF_SCORES = ("name", "value", "num_images", "low", "high", "seeds", "per_seed", "std")
"""Fields that a metric has of a probe's score."""


@dataclass(frozen=True)
class Number:
    """One metric of an encoder."""

    name: str  # key within its group, e.g. "ece-15": letters, digits and hyphens
    title: str  # in standard terms
    value: float  # the mean over seeds if there are several
    protocol: str  # how it was measured, in enough detail to reproduce it
    num_images: int
    better: Better
    unit: Unit = "share"  # how it is displayed
    # 95 % confidence interval over test images, for a fixed encoder and fixed seeds; None if there is none
    low: float | None = None
    high: float | None = None
    seeds: tuple[int, ...] = ()  # of the protocol; empty if it is deterministic
    per_seed: tuple[float, ...] = ()  # the value for each of ``seeds``
    std: float | None = None  # sample standard deviation over ``seeds`` (divisor n - 1); None with fewer than two
    images: str = ""  # short hash of the keys of the images, in their order; empty without ``contributions``
    # (n,) float64, one for each image, with mean ``value``, for paired comparisons of encoders; None if the metric is
    # not a mean over images, even to first order
    contributions: Tensor | None = field(default=None, compare=False, repr=False)
    is_rate: bool = False  # whether every contribution is a rate of correct answers, in [0, 1]

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high)

    __pydantic_config__: ClassVar[dict[str, bool]] = {"arbitrary_types_allowed": True}  # contributions are stored apart


@dataclass(frozen=True)
class Findings:
    """Results of one group for one encoder."""

    numbers: tuple[Number, ...]  # the most important first
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    pictures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()  # sentences that a reader must not miss, e.g. that gradients are masked


def accuracy(
    name: str,
    title: str,
    right: Tensor,
    keys: Tensor,
    *,
    protocol: str,
    seeds: Sequence[int] = (),
) -> Number:
    """Return an accuracy with its Wilson interval; ``right`` is (n,) bool, or (P, n), a row a seed."""
    return as_number(score_of(name, right.reshape(-1, right.shape[-1]), keys, detail=protocol, seeds=seeds), title)


def as_number(score: Score, title: str) -> Number:
    """Return the score of a probe as a metric of a card."""
    if score.answers is None:
        raise ValueError("a score without answers was read from a file, not measured")
    return Number(
        **{name: getattr(score, name) for name in _OF_SCORES},
        title=title,
        protocol=score.detail,
        better="higher",
        images=score.answers.images,
        contributions=torch.from_numpy(table_of([score.answers])[0]),
        is_rate=True,
    )


def as_score(number: Number) -> Score:
    """Return a metric of a card as the score of a probe, without answers."""
    return Score(**{name: getattr(number, name) for name in _OF_SCORES}, detail=number.protocol)


def mean_over_images(
    name: str,
    title: str,
    contributions: Tensor,
    keys: Tensor,
    *,
    protocol: str,
    better: Better,
    unit: Unit = "share",
    seeds: Sequence[int] = (),
) -> Number:
    """Return a metric that is a mean over images, at least to first order, with its interval over images.

    Contributions are (n,), or (P, n) with one row for each of ``seeds``. For a statistic that is not a mean: its value
    plus its influence function at the image.
    """
    rows = contributions.double().cpu().reshape(-1, contributions.shape[-1])  # (P, n)
    values: list[float] = rows.mean(dim=1).tolist()
    value, std = mean_and_std(values)
    each, count = rows.mean(dim=0), rows.shape[1]
    low, high = interval_of_mean(each.numpy()[None], _CHANCE, better) if count > 1 else (None, None)
    return Number(
        name=name,
        title=title,
        value=value,
        protocol=protocol,
        num_images=count,
        better=better,
        unit=unit,
        low=low,
        high=high,
        seeds=tuple(seeds),
        per_seed=tuple(values) if seeds else (),
        std=std,
        images=images_key(keys),
        contributions=each,
    )


def interval_of_mean(table: ImageTable, chance: float, better: Better) -> tuple[float, float]:
    """Return the interval of the mean of contributions, a row a run; of a single run, over images only.

    ``mean - h`` to ``mean + h``, with h of Student's t over images or of ``seeds_and_images``. Of losses, which are
    better lower and never below 0, ``mean exp(-h / mean)`` to ``mean exp(h / mean)``: that of the mean's logarithm. It
    does not go below 0 either, and of skewed losses it misses the true mean less often.
    """
    runs, images = table.shape
    if runs == 1:
        half = quantile(chance, images - 1) * float(table.std(ddof=1)) / float(images**0.5)
    else:
        half = VarianceParts.of(table).half_width(runs, images, chance)
    mean = float(table.mean())
    if better == "lower" and mean > 0 and float(table.min()) >= 0:
        return mean * exp(-half / mean), mean * exp(half / mean)
    return mean - half, mean + half


def two_samples(value: float, first: Tensor, second: Tensor) -> Tensor:
    """Return contributions (m + n,) to a statistic of two independent samples, e.g. an AUROC.

    ``psi_i = value + (N / m) (first_i - value)`` for the first sample, likewise for the second, with N = m + n: their
    mean is ``value``, and the variance of that mean is ``Var(first) / m + Var(second) / n`` (DeLong et al., 1988).

    Components are (m,) and (n,), with mean ``value`` each.
    """
    total = len(first) + len(second)
    parts = [value + (total / len(each)) * (each.double() - value) for each in (first, second)]
    return torch.cat(parts)
