"""What the numbers of a study say: its claims answered, and its rows beside raw pixels and the untrained encoder.

Claims are answered by our numbers, with the intervals that say so, and by the published numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import correlation
from typing import Literal

from ebclab.evaluation.comparison import (
    CHANCE,
    Measurements,
    contrast_with_chance,
    difference_with_chance,
    mean_and_interval,
)
from ebclab.interval import Interval
from ebclab.reports.reading import all_learnt, measured_for_all
from ebclab.reproductions.claims import Cell, Claim, Inequality, clauses
from ebclab.reproductions.plan import PlannedCell, StudyPlan
from ebclab.reproductions.study import FACTORS, Study, Unit
from ebclab.runs.references import REFERENCES, Name, References

_FEWEST_POINTS = 3  # two always lie on a line
_OPEN = "the interval has both sides"

Answer = Literal["holds", "does not hold", "cannot be told"]
_IN_PRINT: Mapping[bool | None, Answer] = {None: "cannot be told", True: "holds", False: "does not hold"}


@dataclass(frozen=True)
class AnsweredComparison:
    """One comparison of a claim."""

    compares: str  # the cells, in words
    needs: str  # what the claim needs of the number, in words
    unit: Unit  # unit of the numbers
    number: float | None  # our number; None if a cell has none
    low: float | None  # lower end of its interval; None if there is none
    high: float | None  # upper end of its interval; None if there is none
    answer: Answer
    why: str  # why it cannot be told; empty otherwise
    in_print: bool | None  # whether it is so by the published numbers; None if they are not all there


@dataclass(frozen=True)
class AnsweredClaim:
    """A claim with its answer."""

    says: str  # the claim
    answer: Answer  # the answer by our numbers
    why: str  # the comparison that decides it or leaves it open, or why no cell answers it
    in_print: Answer  # the answer by the published numbers
    parts: tuple[AnsweredComparison, ...]


@dataclass(frozen=True)
class StudyNumbers:
    """What the claims of a study are asked of."""

    study: Study
    measured: Mapping[Cell, Measurements]  # what the runs of a cell measured
    missing: Mapping[Cell, str]  # why a cell has no number

    @property
    def answers(self) -> tuple[AnsweredClaim, ...]:
        return tuple(map(self._answered, self.study.claims))

    def _answered(self, claim: Claim) -> AnsweredClaim:
        """Return the answer to a claim.

        All comparisons of a claim have to hold, so that each may have the whole chance of error (an intersection-union
        test), divided by the alternatives of which one suffices. One that says the opposite suffices too: those
        intervals share the chance.
        """
        if claim.untold:
            return AnsweredClaim(claim.says, "cannot be told", claim.untold, "cannot be told", ())
        if claim.correlate:
            part = self._correlation(claim)
            return AnsweredClaim(claim.says, part.answer, in_words(part), "cannot be told", (part,))
        wanted = clauses(claim, self.study.columns_of)
        asked = [part for clause in wanted for some in clause for part in some]
        compare = partial(self._part, CHANCE / max(map(len, wanted)), CHANCE / len(set(asked)))
        found = {part: compare(part) for part in asked}

        def by(said: Callable[[AnsweredComparison], Answer]) -> Answer:
            return _all(_any(_all(said(found[part]) for part in some) for some in clause) for clause in wanted)

        answer, in_print = by(lambda part: part.answer), by(lambda part: _IN_PRINT[part.in_print])
        compared = [(part, found[part]) for part in asked]
        return AnsweredClaim(claim.says, answer, _why(answer, compared), in_print, tuple(part for _, part in compared))

    def _correlation(self, claim: Claim) -> AnsweredComparison:
        """Return Pearson's r over rows and columns, the mean over seeds with its interval."""
        pairs = list(zip(claim.correlate, claim.against, strict=True))
        points: dict[int, list[tuple[float, float]]] = {}
        both = [
            (self.measured[row, column], self.measured[row, against])
            for row, (column, against) in product(self.study.rows, pairs)
            if (row, column) in self.measured and (row, against) in self.measured
        ]
        for one, other in both:
            for seed in one.by_seed:
                points.setdefault(seed, []).append((one.by_seed[seed], other.by_seed.get(seed, math.nan)))
        low, high = claim.bounds
        titles = " and ".join(self.study.columns[column].title for column in pairs[0])
        compares = f"r over {len(both) or len(pairs) * len(self.study.rows)} points, the first of {titles}"
        found = partial(AnsweredComparison, compares, f"{low:g} to {high:g}", "plain")
        low, high = -math.inf if low <= -1 else low, math.inf if high >= 1 else high  # what no r exceeds
        by_seed = {seed: pearson for seed, some in points.items() if (pearson := _pearson(some)) is not None}
        if not by_seed:
            lacking = [self.missing[cell] for cell in product(self.study.rows, pairs[0]) if cell in self.missing]
            why = lacking[0] if lacking else f"at least {_FEWEST_POINTS} points that differ are needed"
            return found(None, None, None, "cannot be told", why, None)
        over_seeds = contrast_with_chance([(1.0, Measurements(by_seed, {}))], CHANCE)
        if over_seeds.low is None or over_seeds.high is None:
            return found(over_seeds.mean, None, None, "cannot be told", over_seeds.open, None)
        answer: Answer = "holds" if low < over_seeds.low and over_seeds.high < high else "cannot be told"
        if over_seeds.high < low or high < over_seeds.low:
            answer = "does not hold"
        why = _OPEN if answer == "cannot be told" else ""
        return found(over_seeds.mean, max(over_seeds.low, -1.0), min(over_seeds.high, 1.0), answer, why, None)

    def _part(self, chance_of_holding: float, chance_of_failing: float, part: Inequality) -> AnsweredComparison:
        cells = [cell for cell, _ in part.weights]
        unit = self.study.columns[cells[0][1]].unit
        needs = f"{part.low:g} to {part.high:g}" if math.isfinite(part.high) else f"above {part.low:g}"
        answered = partial(AnsweredComparison, self._compared(part), needs, unit, in_print=self._in_print(part))
        if lacking := [cell for cell in cells if cell not in self.measured]:
            return answered(None, None, None, "cannot be told", self.missing.get(lacking[0], "no number"))
        factor, terms = FACTORS[unit], [(weight, self.measured[cell]) for cell, weight in part.weights]
        found = factor * contrast_with_chance(terms, chance_of_holding)
        if found.low is None or found.high is None:
            return answered(found.mean, None, None, "cannot be told", found.open)
        if part.low < found.low and found.high < part.high:
            return answered(found.mean, found.low, found.high, "holds", "")
        wide = contrast_with_chance(terms, chance_of_failing)
        low, high = factor * (wide.low or 0.0), factor * (wide.high or 0.0)
        if high < part.low or low > part.high:
            return answered(found.mean, low, high, "does not hold", "")
        return answered(found.mean, low, high, "cannot be told", _OPEN)

    def _in_print(self, part: Inequality) -> bool | None:
        numbers = [self.study.published_number(*cell) for cell, _ in part.weights]
        values = [None if each is None else each.value for each in numbers]
        if any(value is None for value in values):
            return None
        total = sum(weight * (value or 0.0) for (_, weight), value in zip(part.weights, values, strict=True))
        total = round(total, 9)  # printed decimals
        return part.low <= total <= part.high if math.isfinite(part.high) else total > part.low

    def _compared(self, part: Inequality) -> str:
        """Return a weighted sum of cells in words; what all cells share is said once."""
        cells = [cell for cell, _ in part.weights]
        rows, columns = {row for row, _ in cells}, {column for _, column in cells}
        names = []
        for (row, column), weight in part.weights:
            title = self.study.columns[column].title if len(rows) == 1 else self.study.rows[row].title
            if len(rows) > 1 and len(columns) > 1:
                title += f" ({self.study.columns[column].title})"
            times = "" if abs(weight) == 1 else f"{abs(weight):g} x "
            names.append(f"{'-' if weight < 0 else '+'} {times}{title}")
        text = " ".join(names).removeprefix("+ ")
        if len(rows) == 1:
            return f"{self.study.rows[cells[0][0]].title}, {text}"
        return f"{self.study.columns[cells[0][1]].title}, {text}" if len(columns) == 1 else text


def _pearson(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the correlation of points; None for few of them, or for equal ones."""
    finite = [point for point in points if not math.isnan(point[1])]
    if len(finite) < _FEWEST_POINTS or any(len(set(values)) == 1 for values in zip(*finite, strict=True)):
        return None
    return correlation(*zip(*finite, strict=True))


def _all(answers: Iterable[Answer]) -> Answer:
    given = set(answers)
    return "does not hold" if "does not hold" in given else "cannot be told" if "cannot be told" in given else "holds"


def _any(answers: Iterable[Answer]) -> Answer:
    given = set(answers)
    return "holds" if "holds" in given else "cannot be told" if "cannot be told" in given else "does not hold"


def _why(answer: Answer, compared: Sequence[tuple[Inequality, AnsweredComparison]]) -> str:
    """Return the comparison that decides, or that leaves the claim open; of several, the one nearest to its bounds."""
    deciding = [(asked, part) for asked, part in compared if part.answer == answer] or compared
    near = [
        (min(abs(part.number - asked.low), abs(part.number - asked.high)), part)
        for asked, part in deciding
        if part.number is not None
    ]
    if not near:
        return deciding[0][1].why
    _, nearest = min(near, key=lambda each: each[0])
    open_ones = sum(part.answer == "cannot be told" for _, part in compared)
    more = ""
    if answer == "cannot be told" and len(compared) > 1:
        more = f"; {open_ones} of {len(compared)} comparisons are open"
    return f"{in_words(nearest)}{more}"


def in_words(part: AnsweredComparison) -> str:
    """Return a comparison as text: cells, number, interval, and what the claim needs."""
    if part.number is None:
        return f"{part.compares}: {part.why}"
    sign = {"percent": "+.2f", "plain": "+.3g", "seconds": "+.1f", "hours": "+.2f"}[part.unit]
    between = "" if part.low is None or part.high is None else f" ({part.low:{sign}} to {part.high:{sign}})"
    why = f" ({part.why})" if part.why else ""
    return f"{part.compares}: {part.number:{sign}}{between}, {part.needs} is needed{why}"


@dataclass(frozen=True)
class BesideRows:
    """What a reference scores beside the rows of a column that share its encoder; accuracies are in [0, 1]."""

    name: Name  # the reference
    column: str  # column of the study
    rows: tuple[str, ...]  # rows that have it as their reference
    value: Interval  # its accuracy
    over: dict[str, Interval]  # how much higher each measured row is; 95 % each


def beside_rows(plan: StudyPlan, measured: Mapping[Cell, Measurements], known: References) -> tuple[BesideRows, ...]:
    """Return the measured references of a plan by name and column, and how much higher the rows are.

    Each difference has the whole chance of error: that every row is above takes all of them (an intersection-union
    test), and a row that is not above is said of that row alone.
    """
    groups: dict[tuple[Name, str, str], list[tuple[PlannedCell, Measurements]]] = {}
    for name in REFERENCES:
        for cell, protocol in plan.beside_references:
            if scores := known.scores(name, protocol, list(cell.runs)):
                groups.setdefault((name, cell.column, protocol.key(name)), []).append((cell, scores))
    return tuple(
        BesideRows(
            name,
            column,
            tuple(cell.row for cell, _ in cells),
            mean_and_interval(cells[0][1], 1, is_rate=True),
            {
                cell.row: difference_with_chance(ours, scores, CHANCE)
                for cell, scores in cells
                if (ours := measured[cell.row, cell.column]).by_seed
            },
        )
        for (name, column, _), cells in groups.items()
    )


def learnt(plan: StudyPlan, beside: tuple[BesideRows, ...]) -> str:
    """Return whether runs, after their last measured epoch, are above the references; empty if they have none."""
    last: dict[tuple[str, tuple[str, ...]], PlannedCell] = {}
    for cell, protocol in plan.beside_references:
        epochs = protocol.config.training.epochs
        key = cell.wanted.measure, tuple(cell.runs.values())
        if key not in last or (cell.wanted.epoch or epochs) > (last[key].wanted.epoch or epochs):
            last[key] = cell
    over: dict[str, dict[Name, Interval]] = {}
    for cell in last.values():
        for each in beside:
            if each.column == cell.column and cell.row in each.over:
                titles = plan.study.rows[cell.row].title, plan.study.columns[cell.column].title
                over.setdefault(f"{titles[0]} ({titles[1]})", {})[each.name] = each.over[cell.row]
    if last and not measured_for_all(over):
        return "Whether anything was learnt is not known: raw pixels and the untrained encoder were not all measured."
    if any(gap.low is None for gaps in over.values() for gap in gaps.values()):
        return "With one seed it cannot be told whether a row is above raw pixels and the untrained encoder."
    return all_learnt(over, "row") if over else ""
