"""What a paper claims of its numbers, as inequalities between cells that a machine can check."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from ebclab.config.names import did_you_mean
from energy_contrast.settings import setting

Cell = tuple[str, str]
"""Row and column."""

ColumnsOf = Mapping[str, tuple[str, ...]]
"""The columns of each row."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper: one of ``above``, ``alike``, ``best``, ``between``, ``correlate`` and ``untold``.

    A cell is written ROW/COLUMN. ROW alone stands for its cells in ``columns``, compared column by column.
    """

    says: str = setting("", "The statement, as a sentence.")
    above: tuple[str, ...] = setting((), "Each of these is higher than each of ``below``.")
    below: tuple[str, ...] = setting((), "See ``above``.")
    by: float = setting(0.0, "By how much at least, in the unit of the column.")
    times: float = setting(1.0, "Times how much ``below`` is, at least.", above=0.0)
    change: tuple[str, ...] = setting((), "Two columns: compares how much rows grow from the first to the second.")
    alike: tuple[str, ...] = setting((), "None of these is further than ``within`` from another.")
    within: float = setting(0.0, "See ``alike``, in the unit of the column.", minimum=0.0)
    best: tuple[str, ...] = setting((), "One of these is the highest of ``among``.")
    among: tuple[str, ...] = setting((), "See ``best``.")
    between: tuple[str, ...] = setting((), "Each of these is within ``bounds``.")
    correlate: tuple[str, ...] = setting(
        (), "Columns whose values, over rows and seeds, have a Pearson correlation with ``against`` within ``bounds``."
    )
    against: tuple[str, ...] = setting((), "See ``correlate``: a column for each of them, in the same order.")
    bounds: tuple[float, ...] = setting((), "See ``between``: lowest and highest, in the unit of the column.")
    columns: tuple[str, ...] = setting((), "Columns in which rows are compared; empty: all.")
    untold: str = setting("", "Why no cell answers it.")


@dataclass(frozen=True)
class Inequality:
    """One inequality: the weighted sum of some cells is above ``low`` and below ``high``."""

    weights: tuple[tuple[Cell, float], ...]  # cells with their weights
    low: float  # lower bound; -inf if there is none
    high: float  # upper bound; inf if there is none


Clause = tuple[tuple[Inequality, ...], ...]
"""Alternatives: it holds if all parts of one of them hold."""


def clauses(claim: Claim, columns_of: ColumnsOf) -> tuple[Clause, ...]:
    """Return the clauses of a valid claim, all of which it needs; empty if no cell answers it."""
    if claim.above:
        return (((tuple(_above(claim, columns_of))),),)
    if claim.between:
        parts = (
            Inequality(((_cell(each, column), 1.0),), *claim.bounds)
            for each in claim.between
            for column in _places((each,), claim, columns_of)
        )
        return ((tuple(parts),),)
    if claim.alike:
        return ((tuple(_alike(claim, columns_of)),),)
    return tuple(_best(claim, columns) for columns in _places(claim.among, claim, columns_of)) if claim.best else ()


def _above(claim: Claim, columns_of: ColumnsOf) -> Iterator[Inequality]:
    for one in claim.above:
        for other in claim.below:
            if claim.change:
                before, after = claim.change
                weights = (((one, after), 1.0), ((one, before), -1.0), ((other, after), -1.0), ((other, before), 1.0))
                yield Inequality(weights, claim.by, math.inf)
                continue
            for column in _places((one, other), claim, columns_of):
                yield Inequality(
                    ((_cell(one, column), 1.0), (_cell(other, column), -claim.times)),
                    claim.by,
                    math.inf,
                )


def _alike(claim: Claim, columns_of: ColumnsOf) -> Iterator[Inequality]:
    for one, other in combinations(claim.alike, 2):
        for column in _places((one, other), claim, columns_of):
            weights = ((_cell(one, column), 1.0), (_cell(other, column), -1.0))
            yield Inequality(weights, -claim.within, claim.within)


def _best(claim: Claim, column: str) -> Clause:
    others = [each for each in claim.among if each not in claim.best]
    return tuple(
        tuple(Inequality(((_cell(one, column), 1.0), (_cell(each, column), -1.0)), 0.0, math.inf) for each in others)
        for one in claim.best
    )


def _places(references: Collection[str], claim: Claim, columns_of: ColumnsOf) -> tuple[str, ...]:
    """Return the columns in which references are compared: one if any of them names its own."""
    named = [each.partition("/")[2] for each in references if "/" in each]
    if named:
        return (named[0],)
    first, *others = (columns_of[each] for each in references)
    return claim.columns or tuple(column for column in first if all(column in each for each in others))


def _cell(reference: str, column: str) -> Cell:
    row, _, own = reference.partition("/")
    return row, own or column


def problems_of(claim: Claim, columns_of: ColumnsOf, columns: Collection[str]) -> list[str]:
    """Return a line for each mistake in a claim, without the claim's own key."""
    names = ("above", "alike", "best", "between", "correlate", "untold")
    kinds = [name for name in names if getattr(claim, name)]
    lines = [] if claim.says else ["says: missing; write the statement"]
    if len(kinds) != 1:
        lines.append(f"one of {', '.join(names[:-1])} and {names[-1]} is needed, got {', '.join(kinds) or 'none'}")
    bounded = "correlate" if claim.correlate else "between"
    for name, other in (("above", "below"), ("best", "among"), (bounded, "bounds"), ("correlate", "against")):
        if bool(getattr(claim, name)) != bool(getattr(claim, other)):
            lines.append(f"{name} and {other}: one needs the other; write both")
    if len(claim.correlate) != len(claim.against) and claim.correlate and claim.against:
        lines.append(
            f"against: a column for each of correlate is needed, got {len(claim.against)} for {len(claim.correlate)}"
        )
    if claim.change and len(claim.change) != 2:
        lines.append(f"change: two columns are needed, got {len(claim.change)}")
    if claim.bounds and (len(claim.bounds) != 2 or claim.bounds[0] > claim.bounds[-1]):
        lines.append(f"bounds: two numbers in ascending order are needed, got {list(claim.bounds)}")
    if len(claim.alike) == 1:
        lines.append("alike: at least two are needed, got 1")
    lines += [f"best: not in among, got {each!r}; add it" for each in claim.best if each not in claim.among]
    for key in ("columns", "change", "correlate", "against"):
        lines += [
            f"{key}: no such column, got {each!r}; {did_you_mean(each, columns)}"
            for each in getattr(claim, key)
            if each not in columns
        ]
    for key in ("above", "below", "alike", "among", "between"):
        lines += [line for each in getattr(claim, key) for line in _wrong_reference(key, each, claim, columns_of)]
    return lines


def _wrong_reference(key: str, reference: str, claim: Claim, columns_of: ColumnsOf) -> list[str]:
    row, slash, column = reference.partition("/")
    if row not in columns_of:
        return [f"{key}: no such row, got {reference!r}; {did_you_mean(row, columns_of)}"]
    needed = (column,) if slash else (*claim.columns, *claim.change)
    return [
        f"{key}: no such cell, got {row}/{each}; {did_you_mean(each, columns_of[row])}"
        for each in needed
        if each not in columns_of[row]
    ]
