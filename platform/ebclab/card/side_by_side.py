"""Compares encoders: means over runs that differ only in the seed, and confidence intervals of differences.

Comparisons are paired by test image. The contributions of the images to a metric (``card.Number``) form the table
of ``seeds_and_images``: one row per run, one column per image. With one run per encoder, intervals cover only the
variation over images, which the page states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

import numpy as np

from ebclab.card.card import FORMAT, Card, Number, interval_of_mean
from ebclab.config.yaml_text import JsonObject
from ebclab.evaluation.comparison import CHANCE
from ebclab.evaluation.seeds_and_images import (
    Table,
    difference_interval,
    difference_over_images,
    mean_interval,
)
from ebclab.formatting import PROBES
from ebclab.interval import Interval
from ebclab.reports.reading import OverReference, learnt
from ebclab.runs.references import PIXELS, REFERENCES, UNTRAINED, Name


@dataclass(frozen=True)
class EncoderColumn:
    """One column of the comparison: a single encoder, or runs that differ only in the seed."""

    label: str  # unique on the page
    cards: tuple[Card, ...]  # sorted by seed

    @property
    def title(self) -> str:
        return f"{self.label}, {len(self.cards)} seeds" if len(self.cards) > 1 else self.label

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs; empty if the encoder is not of a run."""
        return tuple(card.seed for card in self.cards if card.seed is not None)

    @property
    def dataset(self) -> str:
        return self.cards[0].dataset

    def numbers(self, group: str, name: str) -> list[Number]:
        """Return a metric of each card; empty if one of them lacks it."""
        numbers = [number for card in self.cards for number in card.numbers(group) if number.name == name]
        return numbers if len(numbers) == len(self.cards) else []


@dataclass(frozen=True)
class EncoderCell:
    """A metric of one column."""

    value: Interval  # the mean over runs, with their standard deviation, if there are several
    against_first: Interval | None  # this minus the first column; None in the first, and if that lacks the metric

    def to_mapping(self, runs: int) -> JsonObject:
        """Return the cell of a column of so many runs as plain values."""
        value, gap = self.value, self.against_first
        against = None if gap is None else gap.as_difference() | {"verdict": gap.verdict}
        plain: JsonObject = {"mean": value.mean, "low": value.low, "high": value.high, "std": value.std, "runs": runs}
        return {**plain, "against_first": against}


@dataclass(frozen=True)
class NumberRow:
    """A metric of all columns."""

    group: str
    number: Number  # one of the measurements, for its name, title, unit and protocol
    cells: tuple[EncoderCell | None, ...]  # one for each column; None if it was not measured


@dataclass(frozen=True)
class Cards:
    """Measured cards and their comparison, computed once for all outputs."""

    cards: tuple[Card, ...]  # at least one, in the order requested; the others are compared with the first
    page: str = ""  # path or address

    @cached_property
    def columns(self) -> list[EncoderColumn]:
        """Cards as columns, in the order given; runs that differ only in the seed share one.

        Labels are unique if addresses are; if there are several datasets, labels contain the dataset.
        """
        together: dict[str, list[Card]] = {}
        for place, card in enumerate(self.cards):
            column = f"{card.settings} {card.dataset}" if card.settings else f"#{place}"
            while any(each.seed == card.seed for each in together.get(column, ())):
                column += " again"  # a repetition with the same seed is not a sample of another seed
            together.setdefault(column, []).append(card)
        groups = [sorted(each, key=lambda card: card.seed or 0) for each in together.values()]
        labels = _labels([each[0] for each in groups])
        return [EncoderColumn(label, tuple(each)) for label, each in zip(labels, groups, strict=True)]

    @cached_property
    def rows(self) -> list[NumberRow]:
        """Every metric that at least one column has, group by group."""
        by_name: dict[tuple[str, str], Number] = {}
        for column in self.columns:
            for card in column.cards:
                for result in card.results:
                    for number in result.findings.numbers:
                        by_name.setdefault((result.group, number.name), number)
        groups = list(dict.fromkeys(group for group, _ in by_name))
        in_order = sorted(by_name.items(), key=lambda each: groups.index(each[0][0]))
        return [NumberRow(group, number, _cells(self.columns, group, name)) for (group, name), number in in_order]

    @cached_property
    def learnt(self) -> list[str]:
        """Whether each encoder that has references is above them by its probes, beyond noise."""
        return [
            learnt(found, f"On the {column.cards[0].test_images} {column.label}")
            for column in self.columns
            if (found := list(self._over_references(column)))
        ]

    def _over_references(self, column: EncoderColumn) -> Iterator[OverReference]:
        references = self._references(column)
        for row in self.rows:
            name = row.number.name
            if row.group != "classification" or name not in PROBES:
                continue
            mine, compared = column.numbers(row.group, name), _num_compared(self.columns, row.group, name)
            for reference, other in references.items():
                if mine and (theirs := other.numbers(row.group, name)):
                    gap = _difference((column, mine), (other, theirs), compared)
                    yield OverReference(name, reference, _cell(theirs, None).value, gap)

    def _references(self, column: EncoderColumn) -> dict[Name, EncoderColumn]:
        """Return the columns of a column's references; equal ones of several encoders are one column."""
        first = column.cards[0]
        if first.label in REFERENCES:
            return {}
        untrained = [each for each in self.columns if each.cards[0].settings == f"untrained {first.settings}"]
        pixels = [each for each in self.columns if (each.cards[0].label, each.dataset) == (PIXELS, first.dataset)]
        own = [each for each in pixels if each.cards[0].address in {card.address for card in column.cards}]
        found: dict[Name, list[EncoderColumn]] = {PIXELS: own or pixels, UNTRAINED: untrained}
        return {name: columns[0] for name, columns in found.items() if len(columns) == 1}

    @property
    def failures(self) -> list[str]:
        """Groups that failed unexpectedly, one line each."""
        return [
            f"{card.label}: {each.group}: {each.problem}" for card in self.cards for each in card.results if each.failed
        ]

    def to_mapping(self) -> JsonObject:
        """Return cards and their comparison as plain values."""
        compared: list[JsonObject] = [
            {
                "group": row.group,
                "number": row.number.name,
                "columns": {
                    column.label: None if cell is None else cell.to_mapping(len(column.cards))
                    for column, cell in zip(self.columns, row.cells, strict=True)
                },
            }
            for row in self.rows
        ]
        cards = [card.to_mapping() for card in self.cards]
        return {"format": FORMAT, "learnt": self.learnt, "cards": cards, "side_by_side": compared}


def _labels(cards: Sequence[Card]) -> list[str]:
    """Return column labels from the first card of each, extended by the address only as far as needed."""
    several = len({card.dataset for card in cards}) > 1
    plain = [f"{card.label} ({card.dataset})" if several else card.label for card in cards]
    labels = list(plain)
    for of_place in (_tail, lambda card: card.address):
        alike = [label for label in labels if labels.count(label) > 1]
        labels = [
            f"{first} ({of_place(card)})" if label in alike else label
            for label, first, card in zip(labels, plain, cards, strict=True)
        ]
    return labels


def _cells(columns: Sequence[EncoderColumn], group: str, name: str) -> tuple[EncoderCell | None, ...]:
    measured = [(column, column.numbers(group, name)) for column in columns]
    first, compared = measured[0], _num_compared(columns, group, name)
    return tuple(
        _cell(each[1], _difference(each, first, compared) if place and first[1] else None) if each[1] else None
        for place, each in enumerate(measured)
    )


def _num_compared(columns: Sequence[EncoderColumn], group: str, name: str) -> int:
    """Return how many columns a metric's first one is compared with; 1 if with none."""
    return max(1, sum(bool(column.numbers(group, name)) for column in columns) - 1)


_Measured = tuple[EncoderColumn, list[Number]]
"""A column with its values of one metric, one for each run."""


def _cell(numbers: Sequence[Number], against: Interval | None) -> EncoderCell:
    values = [number.value for number in numbers]
    if len(values) == 1:
        return EncoderCell(numbers[0].interval, against)
    low = high = None
    if (table := _table(numbers)) is not None and numbers[0].is_rate:
        low, high = mean_interval(table, CHANCE)
    elif table is not None:
        low, high = interval_of_mean(table, CHANCE, numbers[0].better)
        if numbers[0].unit == "share":  # a gain is a difference of shares, and may be negative
            least = -1.0 if any((number.low or 0.0) < 0 for number in numbers) else 0.0
            low, high = max(least, low), min(1.0, high)
    return EncoderCell(Interval(fmean(values), low, high, std=stdev(values)), against)


def _difference(this: _Measured, other: _Measured, compared: int) -> Interval:
    """Return the difference of a metric to the first column, paired by seed and image; Bonferroni for all compared."""
    (column, numbers), (first, compared_with) = this, other
    mean = fmean(number.value for number in numbers) - fmean(number.value for number in compared_with)
    one, two = _table(numbers), _table(compared_with)
    if column.dataset != first.dataset:
        return Interval(mean, open="measured on other images")
    if one is None or two is None:
        return Interval(mean, open="no interval")
    if numbers[0].images != compared_with[0].images:
        return Interval(mean, open="measured on other images")
    if column.seeds and first.seeds and column.seeds != first.seeds:
        return Interval(mean, open="other seeds")
    chance, runs = CHANCE / compared, max(len(one), len(two))  # one that is no run is paired with every run
    one, two = (np.broadcast_to(each, (runs, each.shape[1])) for each in (one, two))
    table = one - two
    if not numbers[0].is_rate:
        low, high = interval_of_mean(table, chance, "neither")
    elif runs > 1:
        low, high = difference_interval(one, two, chance)
    else:
        low, high = difference_over_images(table[0], chance)
    return Interval(mean, low, high, table.shape[1])


def _table(numbers: Sequence[Number]) -> Table | None:
    """Return the contributions of images, one row per run; None if unknown or not of the same images.

    A metric without a confidence interval of its own, e.g. an ECE, has none in comparisons either.
    """
    rows = [number.contributions for number in numbers if number.low is not None]
    if (
        len(rows) < len(numbers)
        or any(row is None or len(row) < 2 for row in rows)
        or len({number.images for number in numbers}) != 1
    ):
        return None
    return np.stack([row.numpy() for row in rows if row is not None])


def _tail(card: Card) -> str:
    return card.address.rstrip("/").rpartition("/")[2] or card.address
