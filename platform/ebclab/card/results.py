"""Results of one group of a card: metrics, tables, plots and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ebclab.document.document import Picture, Plot, Table
from ebclab.evaluation.answers import images_key
from ebclab.evaluation.intervals import mean_and_std, wilson_interval
from ebclab.evaluation.seeds_and_images import quantile
from ebclab.interval import Interval

Unit = Literal["share", "nats", "plain"]
"""How a metric is displayed: a share in [0, 1] as a percentage, nats, or the plain value."""

Better = Literal["higher", "lower", "neither"]

_CHANCE = 0.05


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
        """The value with its interval over test images."""
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
    """Return an accuracy with its Wilson interval; ``right`` (P, n) bool has one row for each of ``seeds``, or one."""
    values: list[float] = right.double().mean(dim=1).tolist()
    value, std = mean_and_std(values)
    low, high = wilson_interval(value, right.shape[1])
    return Number(
        name=name,
        title=title,
        value=value,
        protocol=protocol,
        num_images=right.shape[1],
        better="higher",
        low=low,
        high=high,
        seeds=tuple(seeds),
        per_seed=tuple(values) if seeds else (),
        std=std,
        images=images_key(keys),
        contributions=right.double().mean(dim=0).cpu(),
        is_rate=True,
    )


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
    """Return a metric that is a mean over images, at least to first order, with its t interval over images.

    Contributions are (n,), or (P, n) with one row for each of ``seeds``. For a statistic that is not a mean: its value
    plus its influence function at the image.
    """
    rows = contributions.double().cpu().reshape(-1, contributions.shape[-1])  # (P, n)
    values: list[float] = rows.mean(dim=1).tolist()
    value, std = mean_and_std(values)
    each, count = rows.mean(dim=0), rows.shape[1]
    half = None
    if count > 1:
        half = quantile(_CHANCE, count - 1) * float(each.std() / count**0.5)
    return Number(
        name=name,
        title=title,
        value=value,
        protocol=protocol,
        num_images=count,
        better=better,
        unit=unit,
        low=None if half is None else value - half,
        high=None if half is None else value + half,
        seeds=tuple(seeds),
        per_seed=tuple(values) if seeds else (),
        std=std,
        images=images_key(keys),
        contributions=each,
    )


def two_samples(value: float, first: Tensor, second: Tensor) -> Tensor:
    """Return contributions (m + n,) to a statistic of two independent samples, e.g. an AUROC.

    ``psi_i = value + (N / m) (first_i - value)`` for the first sample, likewise for the second, with N = m + n: their
    mean is ``value``, and the variance of that mean is ``Var(first) / m + Var(second) / n`` (DeLong et al., 1988).

    Components are (m,) and (n,), with mean ``value`` each.
    """
    total = len(first) + len(second)
    parts = [value + (total / len(each)) * (each.double() - value) for each in (first, second)]
    return torch.cat(parts)
