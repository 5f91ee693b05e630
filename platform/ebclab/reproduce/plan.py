"""Plans the runs of a study at a scale: their settings, their names, and the table cells that use them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ebclab.config import ExperimentConfig, compose, read_overrides
from ebclab.errors import ConfigError
from ebclab.reproduce.catalog import in_common, paper_of
from ebclab.reproduce.measure import Wanted
from ebclab.reproduce.study import Assignments, ColumnAtScale, Scale, SettingsOfSome, Shared, Study


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        name: Name of its folder.
        row: Row of the study.
        config: Its settings.
    """

    name: str
    row: str
    config: ExperimentConfig


@dataclass(frozen=True)
class PlannedCell:
    """One cell of the table.

    Attributes:
        row: Row of the study.
        column: Column of the study.
        wanted: What is measured on each run.
        runs: Names of the runs by seed; empty if nothing is run.
        not_run: Why nothing is run; empty if there are runs.
        here: Substitute for what the paper measured; empty if there is none.
    """

    row: str
    column: str
    wanted: Wanted
    runs: dict[int, str]
    not_run: str = ""
    here: str = ""


@dataclass(frozen=True)
class StudyPlan:
    """A study at one scale.

    Attributes:
        study: The study.
        scale: The scale.
        seeds: Seeds of each run.
        runs: The runs by name, in the order in which they are trained.
        cells: The cells, row by row.
    """

    study: Study
    scale: Scale
    seeds: tuple[int, ...]
    runs: dict[str, PlannedRun]
    cells: tuple[PlannedCell, ...]

    @property
    def datasets(self) -> list[str]:
        """Names of the datasets used for training and evaluation."""
        names = [run.config.data.name for run in self.runs.values()]
        return list(
            dict.fromkeys(names + [cell.wanted.dataset for cell in self.cells if cell.runs and cell.wanted.dataset])
        )

    @property
    def left_out(self) -> dict[str, str]:
        """Why columns are not run, keyed by their titles; columns with the same reason share a key."""
        titles: dict[str, list[str]] = {}
        for name, reason in {cell.column: cell.not_run for cell in self.cells if cell.not_run}.items():
            titles.setdefault(reason, []).append(self.study.columns[name].title)
        return {", ".join(each): reason for reason, each in titles.items()}

    def cells_of(self, run: str) -> list[PlannedCell]:
        """Return the cells that use a run."""
        return [cell for cell in self.cells if run in cell.runs.values()]


def plan_study(
    study: Study,
    scale: Scale,
    *,
    seeds: Sequence[int] = (),
    data_root: str | None = None,
    assignments: Sequence[str] = (),
) -> StudyPlan:
    """Return the runs of a study at a scale. Cells of a row with the same settings share a run.

    Args:
        study: The study.
        scale: The scale.
        seeds: Seeds of each run; empty means those of the scale.
        data_root: Folder that contains datasets; None means the default.
        assignments: Settings that override all others, in the form of ``--set``.

    Raises:
        ConfigError: Settings are invalid; lists the problems of all runs.
    """
    at_scale = study.scales[scale]
    own = [*assignments, *([f"data.root={json.dumps(data_root)}"] if data_root else [])]
    _require_no_seed(assignments)
    used = tuple(seeds) or at_scale.seeds
    runs: dict[str, PlannedRun] = {}
    names: dict[tuple[str, Assignments], str] = {}
    cells: list[PlannedCell] = []
    problems: dict[str, list[str]] = {}  # names of runs by problem
    for row in study.rows:
        for name, column in study.columns.items():
            change = at_scale.columns.get(name, ColumnAtScale())
            wanted = Wanted(column.measure, change.dataset or column.dataset)
            not_run = at_scale.not_run or change.not_run
            if not_run:
                cells.append(PlannedCell(row, name, wanted, {}, not_run, change.here))
                continue
            of_column = column.set + study.rows[row].columns.get(name, SettingsOfSome()).set + change.set
            is_new = (row, of_column) not in names
            base = names.setdefault((row, of_column), f"{row}-{name}" if of_column else row)
            by_seed = {seed: f"{base}-seed{seed}" for seed in used}
            cells.append(PlannedCell(row, name, wanted, by_seed, here=change.here))
            if not is_new:
                continue
            try:
                config = _compose(study, scale, row, name, own)
            except ConfigError as error:
                for line in error.problems:
                    problems.setdefault(line, []).append(base)
                continue
            runs |= {run: PlannedRun(run, row, replace(config, seed=seed)) for seed, run in by_seed.items()}
    if problems:
        raise ConfigError([f"{study.name}, {scale}, {_and_more(bases)}: {line}" for line, bases in problems.items()])
    return StudyPlan(study, scale, used, runs, tuple(cells))


def _require_no_seed(assignments: Sequence[str]) -> None:
    given, _ = read_overrides(assignments)  # invalid assignments are reported later, with other problems
    if "seed" in given:
        raise ConfigError([f"--set seed: every run has a seed of its own, got {given['seed']}; use --seeds"])


def _and_more(bases: Sequence[str]) -> str:
    return bases[0] + (f" and {len(bases) - 1} more" if len(bases) > 1 else "")


def _compose(study: Study, scale: Scale, row: str, column: str, own: Sequence[str]) -> ExperimentConfig:
    """Return a run's settings without its seed, merged from recipe, paper, row, column, scale and the user's own."""
    what, at_scale = study.rows[row], study.scales[scale]
    paper, common = paper_of(study), in_common().scales[scale]
    layers: list[Assignments] = [
        *_shared_settings(paper, what.method),
        what.set,
        study.columns[column].set,
        *(each.set for name, each in what.columns.items() if name == column),
        *_shared_settings(common, what.method),
        at_scale.set,
        *(each.set for name, each in at_scale.rows.items() if name == row),
        *(each.set for name, each in at_scale.columns.items() if name == column),
    ]
    recipe = what.recipe or paper.recipe or None
    return compose(what.method, recipe, overrides=[*(text for layer in layers for text in layer), *own])


def _shared_settings(shared: Shared, method: str) -> list[Assignments]:
    return [shared.set, *(each.set for name, each in shared.methods.items() if name == method)]
