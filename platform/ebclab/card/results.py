"""What one group of a card measured: numbers, tables, plots and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ebclab.evaluation.answers import images_key
from ebclab.evaluation.intervals import mean_and_std, wilson_interval
from ebclab.evaluation.seeds_and_images import quantile
from ebclab.reports.plots import Plot

Unit = Literal["share", "nats", "plain"]
"""How people read a number: a share in [0, 1] in per cent, nats, or as it stands."""

Better = Literal["higher", "lower", "neither"]

_CHANCE = 0.05


@dataclass(frozen=True)
class Number:
    """One number about an encoder.

    Attributes:
        name: Key within its group, such as "ece-15": letters, digits and hyphens.
        title: What it is, in the field's words.
        value: The number; the mean over seeds where there are several.
        protocol: How it was measured, in words that let somebody else measure it.
        num_images: Images that it was measured on.
        better: Which direction is good.
        unit: How it is read.
        low: Lower end of the 95 % interval over test images, with the encoder and the seeds as they are; None where
            there is none.
        high: Upper end of it.
        seeds: Seeds of what is random in the protocol; empty where nothing is.
        per_seed: The number for each of ``seeds``, in their order.
        std: Standard deviation over ``seeds`` (n - 1 in the divisor); None with fewer than two.
        images: Short hash of the keys of the images, in their order; empty without ``contributions``.
        contributions: (n,) float64, what each image adds: their mean is ``value``. Encoders are compared by them, image
            by image. None where the number is no mean over images, to first order.
        is_rate: Every contribution is a share of right answers, in [0, 1].
    """

    name: str
    title: str
    value: float
    protocol: str
    num_images: int
    better: Better
    unit: Unit = "share"
    low: float | None = None
    high: float | None = None
    seeds: tuple[int, ...] = ()
    per_seed: tuple[float, ...] = ()
    std: float | None = None
    images: str = ""
    contributions: Tensor | None = field(default=None, compare=False, repr=False)
    is_rate: bool = False

    __pydantic_config__: ClassVar[dict[str, bool]] = {"arbitrary_types_allowed": True}  # contributions are kept apart


@dataclass(frozen=True)
class Table:
    """A table on the card.

    Attributes:
        title: Heading.
        columns: Heads.
        rows: Cells: text, or numbers, which stand to the right.
        note: How to read it; may be empty.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture on the card.

    Attributes:
        name: Key within its group: letters, digits and hyphens.
        title: Heading.
        note: What is seen, in words; also read by those who do not see it.
        png: The file's bytes.
    """

    name: str
    title: str
    note: str
    png: bytes = field(repr=False)


@dataclass(frozen=True)
class Findings:
    """What one group found out about one encoder.

    Attributes:
        numbers: The numbers, the most important first.
        tables: Tables, in the order to show.
        plots: Plots, likewise.
        pictures: Pictures, likewise.
        remarks: Sentences that a reader must not miss, such as that gradients are masked.
    """

    numbers: tuple[Number, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    pictures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()


def accuracy(
    name: str,
    title: str,
    right: Tensor,
    keys: Tensor,
    *,
    protocol: str,
    seeds: Sequence[int] = (),
) -> Number:
    """Return a share of right answers with Wilson's interval over images.

    Args:
        name: Key within the group.
        title: What it is.
        right: (P, n) bool: right or wrong, a row for each of ``seeds``, or a single row.
        keys: (n,) keys of the images.
        protocol: How it was measured.
        seeds: Seeds of what is random in the protocol.
    """
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
    """Return a number that is a mean over images, to first order, with Student's interval over them.

    Args:
        name: Key within the group.
        title: What it is.
        contributions: (P, n) or (n,) float: what each image adds, a row for each of ``seeds``; the mean is the number.
            Of a statistic that is no mean they are its value plus its influence function at the image.
        keys: (n,) keys of the images.
        protocol: How it was measured.
        better: Which direction is good.
        unit: How it is read.
        seeds: Seeds of what is random in the protocol.
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
    """Return contributions (m + n,) of a statistic of two independent samples, such as an AUROC.

    ``psi_i = value + (N / m) (first_i - value)`` for the first sample, likewise for the second, with N = m + n: their
    mean is ``value``, and the variance of that mean is ``Var(first) / m + Var(second) / n`` (DeLong et al., 1988).

    Args:
        value: The statistic.
        first: (m,) its structural components of the first sample, with mean ``value``.
        second: (n,) those of the second sample, with mean ``value``.
    """
    total = len(first) + len(second)
    parts = [value + (total / len(each)) * (each.double() - value) for each in (first, second)]
    return torch.cat(parts)
