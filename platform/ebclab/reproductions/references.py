"""Raw pixels and the untrained encoder beside the rows of a study, where a probe measures them on their own images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebclab.evaluation.comparison import CHANCE, Measurements, difference_with_chance, mean_and_interval
from ebclab.interval import Interval
from ebclab.reports.reading import all_learnt, measured_for_all
from ebclab.reproductions.claims import Cell
from ebclab.reproductions.plan import PlannedCell, StudyPlan
from ebclab.runs.references import REFERENCES, UNTRAINED, Name, Protocol, References

_MEASURED = ("knn", "linear")


@dataclass(frozen=True)
class BesideRows:
    """What a reference scores beside the rows of a column that share its encoder; accuracies are in [0, 1]."""

    name: Name  # the reference
    column: str  # column of the study
    rows: tuple[str, ...]  # rows that have it as their reference
    value: Interval  # its accuracy
    over: dict[str, Interval]  # how much higher each measured row is; 95 % each


def _cells(plan: StudyPlan) -> list[tuple[PlannedCell, Protocol]]:
    """Return the cells that have references, with their protocol; none at scale smoke, whose numbers say nothing."""
    found = []
    for cell in plan.cells if plan.scale != "smoke" else ():
        wanted, config = cell.wanted, plan.runs.get(next(iter(cell.runs.values()), ""))
        is_own = config is not None and wanted.dataset in ("", config.data.name)
        if config is not None and is_own and wanted.measure in _MEASURED and not (wanted.protocol or cell.curve):
            found.append((cell, Protocol(config, 0, wanted.measure)))
    return found


def protocols(plan: StudyPlan) -> list[tuple[Protocol, tuple[int, ...]]]:
    """Return what the references of a plan are measured by, each with the seeds of the runs beside them."""
    by_key = {(each.probe, each.key(UNTRAINED)): (each, tuple(cell.runs)) for cell, each in _cells(plan)}
    return list(by_key.values())


def beside_rows(plan: StudyPlan, measured: Mapping[Cell, Measurements], known: References) -> tuple[BesideRows, ...]:
    """Return the measured references of a plan by name and column, and how much higher the rows are.

    Each difference has the whole chance of error: that every row is above takes all of them (an intersection-union
    test), and a row that is not above is said of that row alone.
    """
    groups: dict[tuple[Name, str, str], list[tuple[PlannedCell, Measurements]]] = {}
    with_protocol = _cells(plan)
    for name in REFERENCES:
        for cell, protocol in with_protocol:
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
    for cell, protocol in _cells(plan):
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
