"""The table of a reproduction: our numbers beside the published ones, and how to interpret them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from ebclab.evaluation.comparison import ENOUGH_SEEDS, Measurements, mean_and_interval
from ebclab.evaluation.evaluate import PROBES
from ebclab.formatting import count
from ebclab.interval import Interval, NumberFormat
from ebclab.reproductions.answers import AnsweredClaim, BesideRows, StudyNumbers, beside_rows, learnt
from ebclab.reproductions.claims import Cell
from ebclab.reproductions.cost import StudyCost, estimate
from ebclab.reproductions.measure import RunOutcome, first_kept
from ebclab.reproductions.plan import PlannedCell, StudyPlan
from ebclab.reproductions.request import Scale
from ebclab.reproductions.study import FACTORS, PublishedNumber, Unit, paper_of, shared_at
from ebclab.runs.references import References

NOT_REACHED = "the other row never reaches this row's last score"
"""Problem of an efficiency."""

LEFT_OUT = "left out by --rows or --datasets"
"""Why a cell of the study is not in the table."""

NOT_RUN = "not run at this scale"

UNITS: Mapping[Unit, str] = {"percent": "%", "plain": "", "seconds": "s", "hours": "h"}
FORMATS: Mapping[Unit, NumberFormat] = {
    "percent": NumberFormat(digits=1),
    "plain": NumberFormat(digits=".3g"),
    "seconds": NumberFormat(digits=1),
    "hours": NumberFormat(digits=2),
}

WHAT_SCALES_SHOW: Mapping[Scale, str] = {
    "smoke": "A smoke run shows that the commands work from the images to this table. Its numbers say nothing about "
    "the paper: images, network and epochs are others, and a difference from the published number means nothing.",
    "quick": "A quick run shows in minutes what a small one may show in hours; 2,000 images are too few to "
    "contradict a paper.",
    "small": "A small run shows how methods compare on few images with a small network. It can disagree with the paper "
    "without contradicting it: a difference from the published number is mostly one of scale.",
    "paper": "These are the settings of the paper as far as they are known. A difference beyond the interval is to be "
    "explained by what differs, below, or by a mistake on either side; one published run has no interval.",
}


SMOKE_SHOWS = "A smoke run shows that the commands work from the images to this table. Its numbers say nothing."


@dataclass(frozen=True, kw_only=True)
class ReproducedCell(PlannedCell):
    """A cell with our number beside the published one, in the unit of its column."""

    unit: Unit  # unit of the numbers
    measured: Measurements  # what the runs measured, a value of each seed
    ours: Interval | None  # our number, the mean over seeds with its interval; None if there is none
    published: PublishedNumber | None  # the published number; None if there is none
    detail: str  # how our number was measured
    problem: str  # why the runs gave no number; empty if at least one did
    not_reached: str  # why seeds have no number though their runs have ended; empty if all have one

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that the mean is over."""
        return tuple(self.measured.by_seed)

    @property
    def difference(self) -> float | None:
        if self.ours is None or self.published is None or self.published.value is None:
            return None
        return self.ours.mean - self.published.value

    def to_mapping(self) -> dict[str, object]:
        """Return the cell as plain values."""
        plain: dict[str, object] = {name: getattr(self, name) for name in ("row", "column", "unit")}
        plain |= {"ours": self.ours and self.ours.mean}
        plain |= {name: self.ours and getattr(self.ours, name) for name in ("std", "low", "high")}
        plain |= {"seeds": self.seeds, "published": self.published and asdict(self.published)}
        plain |= {
            name: getattr(self, name) for name in ("detail", "here", "not_run", "problem", "not_reached", "difference")
        }
        return plain


@dataclass(frozen=True)
class ReproducedTable:
    """A study at one scale with its numbers."""

    plan: StudyPlan
    cells: tuple[ReproducedCell, ...]  # the cells, row by row
    claims: tuple[AnsweredClaim, ...]  # the claims of the paper, answered
    outcomes: Mapping[str, RunOutcome]  # the outcome of each run by its name
    beside: tuple[BesideRows, ...] = ()  # raw pixels and untrained encoders, where they were measured

    @property
    def seconds(self) -> float:
        """Total training time of all runs, over all launches."""
        return sum(each.seconds for each in self.outcomes.values())

    @cached_property
    def expected(self) -> StudyCost:
        """The estimated cost."""
        return estimate(self.plan)

    @property
    def failures(self) -> tuple[str, ...]:
        """A line for each run that failed."""
        return tuple(f"{name}: {each.problem}" for name, each in self.outcomes.items() if each.problem)

    @property
    def made(self) -> dict[str, list[str]]:
        """Commands, commits, images and machines of the runs, by heading."""
        found = self.outcomes.values()
        texts = {
            "Command": [each.command for each in found],
            "Commit": [each.commit for each in found],
            "Images": [each.images for each in found],
            "Machine": [each.machine for each in found],
        }
        return {name: list(dict.fromkeys(filter(None, each))) for name, each in texts.items()}

    @property
    def differs(self) -> list[str]:
        """How these numbers differ from the paper's setup, one sentence each."""
        study, scale = self.plan.study, self.plan.scale
        assigned = self.plan.assignments
        given = [f"Settings given by --set: {' '.join(assigned)}."] if assigned else []
        layers = (study.scales[scale], shared_at(study, scale), paper_of(study))
        return [*given, *self.stand_ins, *(line for layer in layers for line in layer.differs)]

    @property
    def stand_ins(self) -> list[str]:
        """Substitutes at this scale for what the paper measured, one sentence per column."""
        heads = self.plan.study.columns
        columns = {cell.column: cell.here for cell in self.cells if cell.here}
        return [f"{heads[name].title}: here {here}." for name, here in columns.items()]

    @property
    def learnt(self) -> str:
        """Whether runs are above raw pixels and the untrained encoder; empty if they have none."""
        return learnt(self.plan, self.beside)

    @property
    def source(self) -> str:
        """Where the published numbers are, with the paper's title, authors, year and address."""
        return "; ".join(filter(None, [self.plan.study.about.source, paper_of(self.plan.study).cite]))

    @property
    def released(self) -> list[str]:
        study = self.plan.study
        return [*study.about.released, *paper_of(study).released]

    @property
    def what_it_shows(self) -> str:
        if self.plan.study.is_of_paper:
            return WHAT_SCALES_SHOW[self.plan.scale]
        return SMOKE_SHOWS if self.plan.scale == "smoke" else ""

    @property
    def what_seeds_say(self) -> str:
        """What the intervals cover, and a warning if there are few seeds."""
        count = len(self.plan.seeds)
        shown = ", ".join(map(str, self.plan.seeds))
        if count == 1:
            return f"One seed ({shown}): there is no interval, and nothing follows for another seed. Add --seeds 3."
        text = f"Means over seeds {shown} with 95 % intervals, for other seeds and, of accuracies, other test images."
        return text if count >= ENOUGH_SEEDS else f"{text} {count} seeds are few: read the intervals as a hint."

    def to_mapping(self) -> dict[str, object]:
        """Return everything as plain values."""
        study = self.plan.study
        return {
            "format": 1,
            "study": study.name,
            "title": study.about.title,
            "source": self.source,
            "scale": self.plan.scale,
            "seeds": list(self.plan.seeds),
            "what_it_shows": self.what_it_shows,
            "claims": [asdict(claim) | {"scale": self.plan.scale} for claim in self.claims],
            "cells": [cell.to_mapping() for cell in self.cells],
            "learnt": self.learnt,
            "references": [asdict(each) for each in self.beside],
            "differs": self.differs,
            "not_run": self.plan.left_out,
            "released_code": self.released,
            "numbers": study.about.numbers,
            "repeats": study.about.repeats,
            "unknown": study.about.unknown,
            "runs": list(self.plan.runs),
            "made_by": {name.lower(): texts for name, texts in self.made.items()},
            "seconds": self.seconds,
            "expected_seconds": self.expected.seconds,
            "failures": list(self.failures),
        }


def table_of_plan(
    plan: StudyPlan, outcomes: Mapping[str, RunOutcome], references: References | None = None
) -> ReproducedTable:
    """Return the table of a plan by the outcome of each run."""
    cells = tuple(_cell(plan, cell, outcomes) for cell in plan.cells)
    measured = {(cell.row, cell.column): cell.measured for cell in cells}
    missing: dict[Cell, str] = {
        (row, column): LEFT_OUT for row, columns in plan.study.columns_of.items() for column in columns
    }
    for cell in cells:
        del missing[cell.row, cell.column]
        if cell.ours is None:
            missing[cell.row, cell.column] = cell.problem or f"not run at this scale: {cell.not_run}"
        elif cell.not_reached:
            some = f"reached by {len(cell.seeds)} of {len(plan.seeds)} seeds, whose mean leaves out the others"
            missing[cell.row, cell.column] = some
    whole = {cell: found for cell, found in measured.items() if cell not in missing}
    return ReproducedTable(
        plan,
        cells,
        StudyNumbers(plan.study, whole, missing).answers,
        outcomes,
        beside_rows(plan, measured, references or References()),
    )


def _measured(cell: PlannedCell, outcomes: Mapping[str, RunOutcome]) -> tuple[Measurements, str, str]:
    """Return what was measured for a cell, how, and why seeds have no number though their runs have ended.

    Of an efficiency, it is the share of epochs that the other row needs; of a time to a target, the seconds.
    """
    found = {
        seed: outcomes[run].numbers[cell.wanted]
        for seed, run in cell.runs.items()
        if cell.wanted in outcomes[run].numbers
    }
    detail = next((each.detail for each in found.values()), "")
    if not cell.curve:
        values, answers = [each.value for each in found.values()], [each.answers for each in found.values()]
        return Measurements.of(list(found), values, answers), detail, ""
    last, by_seed, short = max(cell.curve), dict[int, float](), list[tuple[float, float]]()
    for seed, run in cell.curve_runs.items():
        numbers = outcomes[run].numbers
        scores = {epoch: numbers[each].value for epoch, each in cell.curve.items() if each in numbers}
        if seed not in found or len(scores) < len(cell.curve):
            continue
        if cell.target:
            epoch = first_kept(scores, cell.target)
        else:
            epoch = min((epoch for epoch, score in scores.items() if score >= found[seed].value), default=None)
        if epoch is None:
            short.append((max(scores.values()), scores[last]))
        else:
            by_seed[seed] = numbers[cell.times[epoch]].value if cell.target else epoch / last
    if not cell.target:
        how = f"least share of {last} epochs, of {len(cell.curve)} measured"
        return Measurements(by_seed, {}), how, NOT_REACHED if short else ""
    how = (
        f"training time with checkpoints and without scores, to the first of {len(cell.curve)} measured epochs from "
        f"which on none is below {100 * cell.target:g} %; nothing is interpolated; {detail}"
    )
    return Measurements(by_seed, {}), how, _not_reached(cell.target, last, short)


def _not_reached(target: float, epochs: int, short: Sequence[tuple[float, float]]) -> str:
    """Return that seeds ended below a target, by the highest and the last score of each; empty without any."""
    if not short:
        return ""
    most, end = max(short)
    if most < target:
        return f"not reached in {count(epochs, 'epoch')}: at most {100 * most:.2f} %"
    return f"reached and lost in {count(epochs, 'epoch')}: {100 * end:.2f} % at the end"


def _cell(plan: StudyPlan, cell: PlannedCell, outcomes: Mapping[str, RunOutcome]) -> ReproducedCell:
    """Return a cell with the mean over the runs that have a value."""
    column, (found, detail, not_reached) = plan.study.columns[cell.column], _measured(cell, outcomes)
    used = dict.fromkeys((*cell.runs.values(), *cell.curve_runs.values()))
    lost = [outcomes[run].problem for run in used if outcomes[run].problem]
    lost += [not_reached] if not_reached else []
    ours = None
    if found.by_seed:
        ours = FACTORS[column.unit] * mean_and_interval(found, 1, is_rate=column.measure in PROBES)
    return ReproducedCell(
        **vars(cell),
        unit=column.unit,
        measured=found,
        ours=ours,
        published=plan.study.published_number(cell.row, cell.column),
        detail=detail,
        problem=lost[0] if lost and not found.by_seed else "",
        not_reached=not_reached,
    )
