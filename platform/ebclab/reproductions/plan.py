"""Plans the runs of a study at a scale: their settings and names, the table cells that use them, and their folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ebclab.config import ExperimentConfig, compose, did_you_mean, to_mapping
from ebclab.config.recipes import read_overrides
from ebclab.errors import ConfigError, RunError
from ebclab.formatting import first_few
from ebclab.reproductions.measure import SECONDS, Found, Wanted, target_of
from ebclab.reproductions.request import Scale
from ebclab.reproductions.study import (
    Assignments,
    CellOfRow,
    ColumnAtScale,
    SettingsOfSome,
    Shared,
    Study,
    StudyScale,
    paper_of,
    shared_at,
)
from ebclab.runs.references import FILE, UNTRAINED, Protocol
from ebclab.runs.resume import MAY_CHANGE, changed_settings, refuse_changes
from ebclab.storage import atomic
from ebclab.storage.kinds import REPRODUCTION
from ebclab.storage.mirror import Syncer
from ebclab.storage.reading import read_typed, typed, with_checksum
from ebclab.storage.workspace import Workspace

POINTS = 20
"""Number of equal parts of a run after which it is measured for an efficiency."""

_PLACE = ":PATH"
_DATA = "data.name="
_BESIDE = ("knn", "linear")  # probes by which references are measured


@dataclass(frozen=True)
class PlannedCell:
    """One cell of the table."""

    row: str  # row of the study
    column: str  # column of the study
    wanted: Wanted  # what is measured on each run
    runs: dict[int, str]  # names of the runs by seed; empty if nothing is run
    not_run: str = ""  # why nothing is run; empty if there are runs
    lacks: tuple[str, ...] = ()  # kinds of images of the user's own for want of which nothing is run
    here: str = ""  # substitute for what the paper measured; empty if there is none
    # of an efficiency or a time to a target: what is measured, by epoch, on runs of the other row or of its own, and
    # their names by seed; else empty
    curve: dict[int, Wanted] = field(default_factory=dict)
    curve_runs: dict[int, str] = field(default_factory=dict)
    target: float = 0.0  # of a time to a target: the target; else 0
    times: dict[int, Wanted] = field(default_factory=dict)  # of a time to a target: training time by epoch; else empty


@dataclass(frozen=True)
class StudyPlan:
    """A study at one scale."""

    study: Study
    scale: Scale
    seeds: tuple[int, ...]  # seeds of each run
    seeds_from: str  # where their number comes from, in words
    runs: dict[str, ExperimentConfig]  # settings of the runs by name, in the order in which they are trained
    cells: tuple[PlannedCell, ...]  # the cells, row by row
    data_root: str | None = None  # the user's folder of datasets; None: the usual one
    assignments: tuple[str, ...] = ()  # the user's ``--set`` assignments

    @property
    def datasets(self) -> list[str]:
        names = [config.data.name for config in self.runs.values()]
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

    @cached_property
    def beside_references(self) -> list[tuple[PlannedCell, Protocol]]:
        """The cells that have references, with their protocol; none at scale smoke, whose numbers say nothing."""
        found = []
        for cell in self.cells if self.scale != "smoke" else ():
            wanted, config = cell.wanted, self.runs.get(next(iter(cell.runs.values()), ""))
            is_own = config is not None and wanted.dataset in ("", config.data.name)
            if config is not None and is_own and wanted.measure in _BESIDE and not (wanted.protocol or cell.curve):
                found.append((cell, Protocol(config, 0, wanted.measure)))
        return found

    @property
    def protocols(self) -> list[tuple[Protocol, tuple[int, ...]]]:
        """What references are measured by, each with the seeds of the runs beside them."""
        cells = self.beside_references
        return list({(each.probe, each.key(UNTRAINED)): (each, tuple(cell.runs)) for cell, each in cells}.values())

    def cells_of(self, run: str) -> list[PlannedCell]:
        """Return the cells that use a run."""
        return [cell for cell in self.cells if run in cell.runs.values()]

    def wanted_of(self, run: str) -> list[Wanted]:
        """Return everything that is measured on a run, for its cells and for efficiencies of other rows."""
        own = [cell.wanted for cell in self.cells_of(run)]
        curves = [cell for cell in self.cells if run in cell.curve_runs.values()]
        points = [each for cell in curves for each in (*cell.curve.values(), *cell.times.values())]
        return list(dict.fromkeys([*own, *points]))


def needs_images(kinds: Iterable[str]) -> str:
    """Return why cells are not run that lack images of the user's own, of these kinds."""
    return f"needs images of your own; give {' '.join(f'--images {kind}=PATH' for kind in kinds)}"


def plan_study(
    study: Study,
    scale: Scale,
    *,
    seeds: Sequence[int] = (),
    data_root: str | None = None,
    assignments: Sequence[str] = (),
    images: Mapping[str, str] | None = None,
    rows: Sequence[str] = (),
    datasets: Sequence[str] = (),
) -> StudyPlan:
    """Return the runs of a study at a scale. Cells of a row with the same settings share a run.

    Without ``seeds``, there are those of the scale, or as many as the paper has. ``assignments`` override all other
    settings. ``images`` are places of those that everybody has to get on their own, such as ``imagenet``. With
    ``rows``, the plan has no other rows; with ``datasets``, it has no cell that needs other images.
    """
    _require_no_seed(assignments)
    if study.is_own and scale in ("small", "quick") and study.scales[scale] == StudyScale():
        raise ConfigError(
            [f"--scale: {study.name} does not say what {scale} is; use paper, or write scales.small in its file"]
        )
    own = [*assignments, *([f"data.root={json.dumps(data_root)}"] if data_root else [])]
    layers = _Layers(study, scale, tuple(own), images or {})
    used, seeds_from = _seeds(study, scale, tuple(seeds))
    configs: dict[str, ExperimentConfig] = {}  # by name without the seed
    names: dict[tuple[str, Assignments], str] = {}
    cells: dict[tuple[str, str], PlannedCell] = {}
    problems: dict[str, list[str]] = {}  # names of runs by problem
    for row, columns in study.columns_of.items():
        for name in columns:
            cell = cells[row, name] = layers.cell(row, name)
            if cell.not_run or study.reference_of(name):
                continue
            of_column = layers.of_column(row, name)
            is_new = (row, of_column) not in names
            base = names.setdefault((row, of_column), f"{row}-{name}" if of_column else row)
            cells[row, name] = replace(cell, runs={seed: f"{base}-seed{seed}" for seed in used})
            if is_new and [*names.values()].count(base) > 1:
                line = f"rows and columns: a run of row {row} has the name of another; rename the row or its column"
                problems.setdefault(line, []).append(base)
            elif is_new:
                try:
                    configs[base] = layers.compose(row, name)
                except ConfigError as error:
                    for line in error.problems:
                        problems.setdefault(line, []).append(base)
            if base in configs and target_of(cell.wanted.measure):
                for line in _untimed(configs[base]):
                    problems.setdefault(line, []).append(base)
    if problems:
        raise ConfigError([f"{study.name}, {scale}, {first_few(bases, 1)}: {line}" for line, bases in problems.items()])
    runs = {f"{base}-seed{seed}": replace(config, seed=seed) for base, config in configs.items() for seed in used}
    plan = StudyPlan(study, scale, used, seeds_from, runs, tuple(cells.values()), data_root, tuple(assignments))
    plan = _with_epochs(replace(plan, cells=tuple(_looked_up(study, cells, runs))))
    return _part(plan, rows, datasets) if rows or datasets else plan


def _seeds(study: Study, scale: Scale, given: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    own, repeats = study.scales[scale].seeds, study.about.repeats
    if given or own:
        return (given, "--seeds") if given else (own, "the study's at this scale")
    if scale != "paper":
        return (0,), "one, as at every scale where the study names none"
    if not study.is_of_paper:
        return (0,), "one, as --seeds names none"
    return tuple(range(max(repeats, 1))), "as in the paper" if repeats else "the paper does not say how often"


def _looked_up(
    study: Study, cells: Mapping[tuple[str, str], PlannedCell], runs: Mapping[str, ExperimentConfig]
) -> Iterator[PlannedCell]:
    """Yield the cells; efficiencies with the runs of their row, and the curve that its scores are looked up in.

    Times to a target have the curve of their own runs.
    """
    for (row, name), cell in cells.items():
        if cell.not_run or not study.reference_of(name):
            found = None if cell.not_run else target_of(cell.wanted.measure)
            yield _timed(cell, *found, runs) if found else cell
            continue
        _, reference, reached = study.columns[name].measure.split("/")
        own, other = cells[row, reached], cells[reference, reached]
        if own.not_run or other.not_run:
            first = own if own.not_run else other
            yield replace(cell, not_run=first.not_run, lacks=first.lacks)
            continue
        epochs = runs[next(iter(other.runs.values()))].training.epochs
        places = sorted({max(1, round(part * epochs / POINTS)) for part in range(1, POINTS + 1)})
        points = {epoch: replace(other.wanted, epoch=epoch) for epoch in places}
        yield replace(cell, wanted=own.wanted, runs=own.runs, here=own.here, curve=points, curve_runs=other.runs)


def _timed(cell: PlannedCell, probe: str, target: float, runs: Mapping[str, ExperimentConfig]) -> PlannedCell:
    """Return the cell of a time to a target with scores and times at all epochs whose checkpoints its runs keep."""
    training = runs[next(iter(cell.runs.values()))].training
    epochs = [*range(training.keep_every, training.epochs, training.keep_every), training.epochs]
    last = replace(cell.wanted, measure=probe)
    curve = {epoch: replace(last, epoch=epoch) for epoch in epochs}
    times = {epoch: Wanted(SECONDS, "", epoch) for epoch in epochs}
    return replace(cell, wanted=last, curve=curve, curve_runs=cell.runs, target=target, times=times)


def _untimed(config: ExperimentConfig) -> list[str]:
    """Return why a run has no time to a target, one line each."""
    keep, score = config.training.keep_every, config.evaluation.knn_every
    kept = "training.keep_every: a time to a target is read off kept checkpoints, got 0; set training.keep_every=1"
    free = f"evaluation.knn_every: scores would count as training time, got {score}; set evaluation.knn_every=0"
    return [*([] if keep else [kept]), *([free] if score else [])]


def _with_epochs(plan: StudyPlan) -> StudyPlan:
    """Return the plan with runs that keep their checkpoints of all epochs that are measured."""
    runs, problems = {}, []
    for name, config in plan.runs.items():
        last, measured = config.training.epochs, {each.epoch for each in plan.wanted_of(name)}
        problems += [
            f"{plan.study.name}, {plan.scale}, {name}: measured after epoch {epoch}, and trained for {last}; "
            "train it for longer, or measure earlier"
            for epoch in sorted(measured)
            if epoch > last
        ]
        keep = math.gcd(*(measured - {last}))
        runs[name] = replace(config, training=replace(config.training, keep_every=keep or config.training.keep_every))
    if problems:
        raise ConfigError(problems)

    def at_end(wanted: Wanted, named: Mapping[int, str]) -> Wanted:
        """Return the measurement with 0 in place of the last epoch, which has the usual checkpoint."""
        return replace(wanted, epoch=0) if wanted.epoch == runs[next(iter(named.values()))].training.epochs else wanted

    def settled(cell: PlannedCell) -> PlannedCell:
        if not cell.runs:
            return cell
        curve = {epoch: at_end(each, cell.curve_runs) for epoch, each in cell.curve.items()}
        return replace(cell, wanted=at_end(cell.wanted, cell.runs), curve=curve)

    return replace(plan, runs=runs, cells=tuple(map(settled, plan.cells)))


def _part(plan: StudyPlan, rows: Sequence[str], datasets: Sequence[str]) -> StudyPlan:
    """Return the plan of some rows and datasets; its runs are those of the whole plan, so that others can join them."""
    where = f"{plan.study.name} at scale {plan.scale}"
    of_cells = [
        (cell, {plan.runs[run].data.name for run in cell.runs.values()} | {cell.wanted.dataset} - {""})
        for cell in plan.cells
    ]
    images = {name for cell, names in of_cells if cell.runs for name in names}
    problems = [
        f"{option}: not in {where}, got {name}; {did_you_mean(name, known, option)}"
        for option, names, known in (("--rows", rows, list(plan.study.rows)), ("--datasets", datasets, sorted(images)))
        for name in names
        if name not in known
    ]
    cells = [
        cell
        for cell, names in of_cells
        if not rows or {cell.row, plan.study.reference_of(cell.column) or cell.row} <= set(rows)
        if not datasets or (cell.runs and names <= set(datasets))
    ]
    if not problems and not any(cell.runs for cell in cells):
        problems = [f"--rows, --datasets: nothing of {where} is run with these; name more of them"]
    if problems:
        raise ConfigError(problems)
    names = {run for cell in cells for run in (*cell.runs.values(), *cell.curve_runs.values())}
    return replace(plan, cells=tuple(cells), runs={name: run for name, run in plan.runs.items() if name in names})


def _require_no_seed(assignments: Sequence[str]) -> None:
    given, _ = read_overrides(assignments)  # invalid assignments are reported later, with other problems
    if "seed" in given:
        raise ConfigError([f"--set seed: every run has its own seed, got {given['seed']}; use --seeds"])


@dataclass(frozen=True)
class _Layers:
    """The settings of a study's cells at a scale, from recipe, paper, row, column, scale and the user's own."""

    study: Study
    scale: Scale
    own: Assignments
    images: Mapping[str, str]

    def __post_init__(self) -> None:
        known = _needed(self.study)
        if wrong := [name for name in self.images if name not in known]:
            raise ConfigError(
                [f"--images: {self.study.name} has none, got {name}; {did_you_mean(name, known)}" for name in wrong]
            )

    def cell(self, row: str, name: str) -> PlannedCell:
        """Return a cell without its runs; with the reason if there are none."""
        column, at_scale, change = self.study.columns[name], self.study.scales[self.scale], self._change(name)
        wanted = Wanted(
            change.measure or self._of_row(row, name).measure or column.measure,
            self._placed(change.dataset or column.dataset),
            change.epoch or column.epoch,
            self._placed(change.outside or column.outside),
            change.attacked,
            change.protocol,
        )
        data = [text for text in self._texts(row, name) if text.startswith(_DATA)]
        needed = [text for text in (*data[-1:], wanted.dataset, wanted.outside) if text.endswith(_PLACE)]
        not_run = at_scale.not_run or change.not_run
        if at_scale.only and name not in at_scale.only:
            not_run = not_run or at_scale.others
        if needed and not not_run:
            kinds = tuple(dict.fromkeys(text.removesuffix(_PLACE).rpartition("=")[2] for text in needed))
            return PlannedCell(row, name, wanted, {}, needs_images(kinds), kinds, change.here)
        return PlannedCell(row, name, wanted, {}, not_run, here=change.here)

    def of_column(self, row: str, column: str) -> Assignments:
        """Return what a column adds to the settings of a row."""
        return self.study.columns[column].set + self._of_row(row, column).set + self._change(column).set

    def _change(self, column: str) -> ColumnAtScale:
        return self.study.scales[self.scale].columns.get(column, ColumnAtScale())

    def _of_row(self, row: str, column: str) -> CellOfRow:
        return self.study.rows[row].columns.get(column, CellOfRow())

    def compose(self, row: str, column: str) -> ExperimentConfig:
        """Return the settings of a run without its seed."""
        what = self.study.rows[row]
        return compose(
            what.method, what.recipe or paper_of(self.study).recipe or None, overrides=self._texts(row, column)
        )

    def _texts(self, row: str, column: str) -> list[str]:
        what, at_scale = self.study.rows[row], self.study.scales[self.scale]
        layers: list[Assignments] = [
            *_shared_settings(paper_of(self.study), what.method),
            what.set,
            self.study.columns[column].set,
            self._of_row(row, column).set,
            *_shared_settings(shared_at(self.study, self.scale), what.method),
            at_scale.set,
            at_scale.rows.get(row, SettingsOfSome()).set,
            self._change(column).set,
            self.own,
        ]
        return [self._placed(text) for layer in layers for text in layer]

    def _placed(self, text: str) -> str:
        """Return a dataset, or a setting with one, with the user's place in it."""
        if not text.endswith(_PLACE):
            return text
        front, _, kind = text.removesuffix(_PLACE).rpartition("=")
        given = self.images.get(kind)
        return text if given is None else f"{front}{'=' if front else ''}{kind}:{given}"


def _needed(study: Study) -> list[str]:
    """Return the kinds of images that a study has a place for, such as ``imagenet``."""
    scales = study.scales.values()
    changes = [change for scale in scales for change in scale.columns.values()]
    settings = [each.set for each in study.rows.values()] + [each.set for each in study.columns.values()]
    settings += [each.set for each in scales] + [each.set for each in changes]
    texts = [text for some in settings for text in some]
    texts += [text for each in study.columns.values() for text in (each.dataset, each.outside)]
    texts += [text for each in changes for text in (each.dataset, each.outside)]
    return list(dict.fromkeys(text.removesuffix(_PLACE).rpartition("=")[2] for text in texts if text.endswith(_PLACE)))


def _shared_settings(shared: Shared, method: str) -> list[Assignments]:
    return [shared.set, shared.methods.get(method, SettingsOfSome()).set]


FORMAT = 1
_Plain = dict[str, object]
"""The settings of a run as plain values."""
_SHOWN = 5  # maximum number of changed settings in a message


@dataclass(frozen=True)
class _StoredPlan:
    study: str
    scale: str
    runs: dict[str, _Plain]


@dataclass(frozen=True)
class _StoredNumbers:
    run: str
    finished: str
    numbers: tuple[dict[str, object], ...]  # each what was wanted, and what was found


class ReproductionFolder(Workspace):
    """The folder of one study at one scale. Each run is synced by the process that trains it."""

    kind = REPRODUCTION

    @classmethod
    def of_plan(cls, plan: StudyPlan, to: str | None) -> ReproductionFolder:
        """Return the folder of a plan: ``to``, or a folder in ``reproductions`` in the current folder."""
        usual = f"reproductions/{plan.study.name.replace('/', '-')}-{plan.scale}"
        return cls.at(usual if to is None else to)

    @property
    def references(self) -> Path:
        """What raw pixels and untrained encoders score on the test images."""
        return self.own(FILE)

    @contextmanager
    def enter(self, plan: StudyPlan) -> Iterator[Syncer]:
        """Claim the folder and write the plan; the plan of an existing folder may only be extended by further runs."""
        self.pull_free()._runs_with(plan)  # refused before anything is written
        with self.claim() as syncer:
            runs = self._runs_with(plan)
            content = {"format": FORMAT, "study": plan.study.name, "scale": plan.scale, "runs": runs}
            atomic.write_json(self.plan, with_checksum(content))
            syncer.push()
            yield syncer

    def _runs_with(self, plan: StudyPlan) -> dict[str, _Plain]:
        """Return the settings of the runs there and of those of ``plan``, by name."""
        now = {name: to_mapping(config) for name, config in plan.runs.items()}
        for name in plan.runs:
            self.own(REPRODUCTION.inside, name)
        if not self.has_plan():
            return now
        where, remedy = self.address_of(self.plan), "choose another --to"
        before = read_typed(self.plan, _StoredPlan, where, what="not the plan of a reproduction", remedy=remedy)
        self._require_same(before, plan, now)
        return before.runs | now

    def _require_same(self, before: _StoredPlan, plan: StudyPlan, now: Mapping[str, _Plain]) -> None:
        if (before.study, before.scale) != (plan.study.name, plan.scale):
            raise RunError(
                f"{self.address}: holds {before.study} at scale {before.scale}, not {plan.study.name} at {plan.scale}; "
                "choose another --to"
            )
        changed = [
            f"{name}, {line}"
            for name in now
            if name in before.runs
            for line in changed_settings(before.runs[name], now[name], tuple(MAY_CHANGE), what="folder")
        ]
        refuse_changes(self.address, changed, "holds runs with other settings; choose another --to", most=_SHOWN)

    def write_numbers(self, run: str, finished: str, found: Mapping[Wanted, Found]) -> None:
        """Save the measured values of a run.

        ``finished``, from its result, identifies the training, so that a new one is measured again.
        """
        numbers = [asdict(wanted) | asdict(each) for wanted, each in found.items()]
        file = self._numbers(run)
        content = with_checksum({"format": FORMAT, "run": run, "finished": finished, "numbers": numbers})
        try:
            atomic.make_folder(file.parent)
            atomic.write_json(file, content)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written, got {error.strerror or error}; free some space") from error

    def read_numbers(self, run: str, finished: str) -> dict[Wanted, Found]:
        """Return the saved values of a run; empty if the file is missing, damaged, or of an earlier training."""
        try:
            stored = read_typed(self._numbers(run), _StoredNumbers)
            numbers = {typed(each, Wanted): typed(each, Found) for each in stored.numbers}
        except (RunError, ValueError):
            return {}
        return numbers if (stored.run, stored.finished) == (run, finished) else {}

    def _numbers(self, run: str) -> Path:
        return self.own("measured") / f"{run}.json"
