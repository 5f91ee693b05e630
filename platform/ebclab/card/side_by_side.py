"""Several encoders side by side: means over runs that differ in the seed alone, and how sure differences are.

Encoders are compared image by image, on the same test images. The contributions of an image to a number (results.py)
are what ``seeds_and_images`` calls the table: a row for each run, a column for each image. With one run each, only the
images are known to vary, and the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from ebclab.card.card import Card
from ebclab.card.results import Number
from ebclab.evaluation.comparison import CHANCE, Difference
from ebclab.evaluation.seeds_and_images import (
    Table,
    VarianceParts,
    difference_interval,
    difference_over_images,
    mean_interval,
    quantile,
)


@dataclass(frozen=True)
class EncoderColumn:
    """Encoders of one kind: a single one, or runs whose settings differ in the seed alone.

    Attributes:
        label: What the page calls it.
        cards: Their cards, by seed.
    """

    label: str
    cards: tuple[Card, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs; empty for what is no run."""
        return tuple(card.seed for card in self.cards if card.seed is not None)

    @property
    def dataset(self) -> str:
        """What they were measured on."""
        return self.cards[0].dataset

    def numbers(self, group: str, name: str) -> list[Number]:
        """Return a number of each card; empty when one of them lacks it."""
        found = [number for card in self.cards for number in card.numbers(group) if number.name == name]
        return found if len(found) == len(self.cards) else []


@dataclass(frozen=True)
class Cell:
    """A number of one column.

    Attributes:
        mean: The number; the mean over runs.
        low: Lower end of its 95 % interval; None where there is none.
        high: Upper end of it.
        std: Standard deviation over runs; None with a single one.
        runs: How many runs.
        against_first: How much larger it is than that of the first column; None in the first column, and where the
            first has no such number.
    """

    mean: float
    low: float | None
    high: float | None
    std: float | None
    runs: int
    against_first: Difference | None


@dataclass(frozen=True)
class NumberRow:
    """A number of all columns.

    Attributes:
        group: The group that measured it.
        number: One of the measured numbers: its name, title, unit and protocol.
        cells: One for each column; None where it was not measured.
    """

    group: str
    number: Number
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class SideBySide:
    """Cards beside each other, compared once for everything that shows them.

    Attributes:
        cards: The cards, at least one; the first is what the others are compared with.
        columns: The cards, those that differ in the seed alone together.
        rows: Every number that one of the columns has, group by group.
    """

    cards: tuple[Card, ...]
    columns: list[EncoderColumn]
    rows: list[NumberRow]

    @classmethod
    def of(cls, cards: Sequence[Card]) -> SideBySide:
        """Return the comparison of cards."""
        columns = columns_of(cards)
        return cls(tuple(cards), columns, rows_of(columns))


def columns_of(cards: Sequence[Card]) -> list[EncoderColumn]:
    """Return cards as columns, in the order given; runs that differ in the seed alone share one.

    No two columns have the same label, and where they were measured on several datasets it says on which.
    """
    together: dict[str, list[Card]] = {}
    for place, card in enumerate(cards):
        column = f"{card.settings} {card.dataset}" if card.settings else f"#{place}"
        while any(each.seed == card.seed for each in together.get(column, ())):
            column += " again"  # a repetition with the same seed says nothing about other seeds
        together.setdefault(column, []).append(card)
    groups = [sorted(each, key=lambda card: card.seed or 0) for each in together.values()]
    labels = _labels([each[0] for each in groups])
    return [EncoderColumn(label, tuple(each)) for label, each in zip(labels, groups, strict=True)]


def _labels(cards: Sequence[Card]) -> list[str]:
    """Return what columns are called, each by its first card: as shortly as tells them apart."""
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


def rows_of(columns: Sequence[EncoderColumn]) -> list[NumberRow]:
    """Return every number that one of the columns has, group by group."""
    found: dict[tuple[str, str], Number] = {}
    for column in columns:
        for card in column.cards:
            for result in card.results:
                for number in result.findings.numbers:
                    found.setdefault((result.group, number.name), number)
    order = list(dict.fromkeys(group for group, _ in found))
    return [
        NumberRow(group, number, _cells(columns, group, name))
        for wanted in order
        for (group, name), number in found.items()
        if group == wanted
    ]


def _cells(columns: Sequence[EncoderColumn], group: str, name: str) -> tuple[Cell | None, ...]:
    """Return a number of all columns; differences are to the first of them."""
    measured = [_NumberOfRuns(column.numbers(group, name), column.seeds, column.dataset) for column in columns]
    first = measured[0]
    compared = max(1, sum(bool(each.numbers) for each in measured) - 1)
    return tuple(
        _cell(each.numbers, _difference(each, first, compared) if place and first.numbers else None)
        if each.numbers
        else None
        for place, each in enumerate(measured)
    )


class _NumberOfRuns(NamedTuple):
    """One number of one column: that of each run, and the seeds of the runs; no seed for what is no run."""

    numbers: list[Number]
    seeds: tuple[int, ...]
    dataset: str


def _cell(numbers: Sequence[Number], against: Difference | None) -> Cell:
    values = [number.value for number in numbers]
    if len(values) == 1:
        return Cell(values[0], numbers[0].low, numbers[0].high, None, 1, against)
    low = high = None
    if (table := _table(numbers)) is not None and numbers[0].is_rate:
        low, high = mean_interval(table, CHANCE)
    elif table is not None:
        low, high = _around(table, _half_width(table, CHANCE))
        if numbers[0].unit == "share":
            low, high = max(0.0, low), min(1.0, high)
    return Cell(fmean(values), low, high, stdev(values), len(values), against)


def _difference(column: _NumberOfRuns, first: _NumberOfRuns, compared: int) -> Difference:
    """Return how much larger a number is than the first column's; runs of the same seed are compared with each other.

    Args:
        column: The number of a column.
        first: That of the first column.
        compared: Columns that are compared with the first: their intervals hold together (Bonferroni).
    """
    mean = fmean(number.value for number in column.numbers) - fmean(number.value for number in first.numbers)
    one, other = _table(column.numbers), _table(first.numbers)
    if one is None or other is None:
        return Difference(mean, None, None, open="no interval")
    if (column.dataset, column.numbers[0].images) != (first.dataset, first.numbers[0].images):
        return Difference(mean, None, None, open="measured on other images")
    if column.seeds and first.seeds and column.seeds != first.seeds:
        return Difference(mean, None, None, open="other seeds")
    chance, runs = CHANCE / compared, max(len(one), len(other))  # what is no run is the same beside every run
    one, other = (np.broadcast_to(each, (runs, each.shape[1])) for each in (one, other))
    table = one - other
    if not column.numbers[0].is_rate:
        low, high = _around(table, _half_width(table, chance))
    elif runs > 1:
        low, high = difference_interval(one, other, chance)
    else:
        low, high = difference_over_images(table[0], chance)
    return Difference(mean, low, high, table.shape[1])


def _table(numbers: Sequence[Number]) -> Table | None:
    """Return what each image contributes, a row for each run; None where that is not known of the same images.

    A number without an interval of its own, such as an ECE, has none beside others either.
    """
    rows = [number.contributions for number in numbers if number.low is not None]
    if (
        len(rows) < len(numbers)
        or any(row is None or len(row) < 2 for row in rows)
        or len({number.images for number in numbers}) != 1
    ):
        return None
    return np.stack([row.numpy() for row in rows if row is not None])


def _half_width(table: Table, chance: float) -> float:
    """Return the half width of the interval of a table's mean; of a single run over images alone."""
    runs, images = table.shape
    if runs == 1:
        return quantile(chance, images - 1) * float(table.std(ddof=1)) / float(images**0.5)
    return VarianceParts.of(table).half_width(runs, images, chance)


def _around(table: Table, half: float) -> tuple[float, float]:
    mean = float(table.mean())
    return mean - half, mean + half


def _tail(card: Card) -> str:
    """Return the last part of an address, by which columns with equal labels are told apart."""
    return card.address.rstrip("/").rpartition("/")[2] or card.address
