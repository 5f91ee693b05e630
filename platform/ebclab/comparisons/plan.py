"""The plan of a comparison: made from a request, written and hashed before the first run, extended; its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import yaml

from ebclab.comparisons.request import ComparisonRequest, Metric
from ebclab.config import ExperimentConfig, compose, did_you_mean, to_mapping
from ebclab.config.check import as_written, settings_of
from ebclab.config.experiment import SECTIONS, known_method
from ebclab.config.names import LONGEST_NAME, is_folder_name
from ebclab.data.sources.location import short_name
from ebclab.errors import ConfigError, RunError
from ebclab.evaluation.objectives import ANSWERED
from ebclab.methods_by_name import as_file_name
from ebclab.runs.references import FILE, Protocol, References
from ebclab.runs.resume import changed_settings, refuse_changes
from ebclab.storage import atomic
from ebclab.storage.kinds import COMPARISON
from ebclab.storage.reading import read_typed, typed
from ebclab.storage.workspace import Workspace
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan, make_plan, plan_of
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.space.space import Space, load_space

Arm = Literal["draws", "practice"]
"""How settings are searched: random draws without early stopping, or TPE and ASHA with a time budget."""
FORMAT: Literal[1] = 1
RULES = (
    "Each draw is an independent random point of the method's search space, trained in full with one seed; the default "
    "settings are trained beside them and are not among the draws.",
    "The best draw, or the default settings where no draw is better, by the score on held-out training images is the "
    "tuned setting. It and the default settings are run again with the same new seeds for all methods.",
    "What is compared is the accuracy of these runs on the test images, read once for each of them.",
    "A run that diverged, collapsed or failed counts as wrong about every image.",
)
"""The rules by which settings are chosen and compared."""


@dataclass(frozen=True)
class Task:
    """Setting in which methods are compared: dataset, batch size, and repeat of the complete search."""

    dataset: str  # name of the dataset
    batch_size: int  # images per batch
    repeat: int = 0  # index of the repeat, from 0


Key = tuple[str, str, int]
"""Method, dataset and batch size."""


@dataclass(frozen=True)
class PlannedSweep:
    """One sweep of a comparison."""

    method: str  # name of the method
    task: Task  # task it is compared on
    arm: Arm  # how its settings are searched
    plan: SweepPlan

    @property
    def config(self) -> ExperimentConfig:
        return self.plan.config

    @property
    def key(self) -> Key:
        return self.method, self.task.dataset, self.task.batch_size

    @property
    def where(self) -> str:
        """Method and batch size, for messages."""
        return f"{self.method} at batch size {self.task.batch_size}"

    def protocol(self, metric: Metric) -> Protocol:
        """Return the protocol by which its runs are measured on the test images."""
        return Protocol(self.config, self.config.data.train_limit, metric)

    @property
    def runs(self) -> int:
        """Number of its runs, confirming ones included."""
        return self.plan.trials + self.plan.confirming_runs

    def run_seconds(self, epoch: float) -> float:
        """Return the training time of a run with the default settings, of which one epoch takes ``epoch`` seconds."""
        return epoch * self.config.training.epochs

    def longest_seconds(self, epoch: float) -> float:
        """Return the training time of all runs, if none diverges and tuned settings take as long as default ones."""
        run = self.run_seconds(epoch)
        if self.arm == "practice":
            return self.plan.search_seconds + run + self.plan.confirming_runs * run
        return run * self.runs

    @property
    def name(self) -> str:
        ends = [f"repeat{self.task.repeat}"] * bool(self.task.repeat) + ["practice"] * (self.arm == "practice")
        return "-".join([as_file_name(self.method), short_name(self.task.dataset), f"b{self.task.batch_size}", *ends])


@dataclass(frozen=True)
class _SavedSweep:
    method: str
    task: Task
    arm: Arm
    sweep: dict[str, object]


@dataclass(frozen=True, kw_only=True)
class _SavedComparison:
    """The content of comparison.yaml, in this order."""

    format: Literal[1]
    digest: str
    asked: ComparisonRequest
    rules: tuple[str, ...] = RULES
    sweeps: dict[str, _SavedSweep]


@dataclass(frozen=True)
class ComparisonPlan:
    """Everything that determines the results of a comparison."""

    request: ComparisonRequest
    sweeps: tuple[PlannedSweep, ...]  # the sweeps, in the order in which they are run
    # digest with which the plan was written, possibly by a version with fewer settings; empty for a plan that has not
    # been written
    written_digest: str = ""

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(dict.fromkeys(planned.task for planned in self.sweeps))

    @property
    def different(self) -> dict[Key, PlannedSweep]:
        """The first sweep of each method, dataset and batch size."""
        found: dict[Key, PlannedSweep] = {}
        for planned in self.sweeps:
            found.setdefault(planned.key, planned)
        return found

    @property
    def epochs(self) -> dict[Key, int]:
        return {planned.key: planned.config.training.epochs for planned in self.sweeps}

    @property
    def default_name(self) -> str:
        """Name of a comparison that gets none: its methods and its first dataset."""
        methods = map(as_file_name, self.request.methods)
        return "-".join([*methods, short_name(self.tasks[0].dataset)])[:LONGEST_NAME]

    @property
    def digest(self) -> str:
        """SHA-256, first 16 digits, of all that determines the results; data folders and resources are excluded."""
        if self.written_digest:
            return self.written_digest
        plain = asdict(_saved(self, digest=""))
        del plain["digest"], plain["rules"], plain["asked"]["data_root"]
        for planned in plain["sweeps"].values():
            planned["sweep"]["config"].pop("resources")
            planned["sweep"]["config"]["data"].pop("root")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _saved(plan: ComparisonPlan, digest: str) -> _SavedComparison:
    sweeps = {
        planned.name: _SavedSweep(planned.method, planned.task, planned.arm, {**planned.plan.to_mapping()})
        for planned in plan.sweeps
    }
    return _SavedComparison(format=FORMAT, digest=digest, asked=plan.request, sweeps=sweeps)


MAY_GROW = ("trials", "seeds", "repeats")
"""Numbers that may be increased when a comparison is resumed."""
_OF_RUNNING = ("config.data.root", "config.resources.", "trials", "seeds", "format")


def growth(before: ComparisonPlan, now: ComparisonPlan, where: str) -> list[str]:
    """Return what ``now`` adds to ``before``, the plan in the folder ``where``, one line each."""
    old, new = before.request, now.request
    grown, changed = list[str](), list[str]()
    for name in MAY_GROW:
        had, has = getattr(old, name), getattr(new, name)
        if has > had:
            grown.append(f"{name}: {had} to {has}")
        elif has < had:
            changed.append(f"{name}: {had} there, {has} here; it may grow, not shrink")
    known, asked = ({planned.name: planned for planned in plan.sweeps} for plan in (before, now))
    changed += [f"{name}: there, and not here" for name in known if name not in asked]
    grown += [f"{name}: new" for name in asked if name not in known]
    for name in (name for name in known if name in asked):
        there, here = known[name].plan.to_mapping(), asked[name].plan.to_mapping()
        changed += [f"{name}: {line}" for line in changed_settings(there, here, _OF_RUNNING, what="comparison")]
    for name in ("metric", "margin", "reference", "target", "budget"):
        if getattr(old, name) != getattr(new, name):
            changed.append(f"{name}: {getattr(old, name)} there, {getattr(new, name)} here")
    changed += [f"question {text}: there, and not here" for text in old.questions if text not in new.questions]
    grown += [f"question {text}: new" for text in new.questions if text not in old.questions]
    refuse_changes(where, changed, "this comparison was planned otherwise; choose another --name")
    return grown


def equal_seconds(
    plan: ComparisonPlan,
    before: ComparisonPlan | None,
    measured: Callable[[ComparisonPlan], Mapping[Key, float]],
) -> dict[Key, int]:
    """Return epochs for which runs of all methods take as long as the first method's, for each batch size.

    In ``plan`` all methods train for the same number of epochs. A plan to continue, ``before``, keeps its epochs, and
    methods that join it have the seconds of its first method. Seconds of an epoch are ``measured`` if they are needed.
    """
    epochs, asked = before.epochs if before else {}, plan.epochs
    if epochs.keys() >= asked.keys():
        return epochs
    seconds = measured(plan)
    methods = plan.request.methods
    like = next((name for name in before.request.methods if name in methods), methods[0]) if before else methods[0]
    problems = dict[str, None]()
    for planned in (planned for planned in plan.sweeps if planned.key not in epochs):
        reference = (like, planned.task.dataset, planned.task.batch_size)
        first = seconds[reference] * epochs.get(reference, asked[reference])
        own = seconds[planned.key]
        epochs[planned.key] = round(first / own)
        if own > first:
            line = (
                f"--budget seconds: less than one epoch of {planned.where}, got {first:.3g} s, those of a run of "
                f"{like}; one takes {own:.3g} s: raise --epochs"
            )
            problems[line] = None
    if problems:
        raise ConfigError(list(problems))
    return epochs


PILOT = COMPARISON.leftover.rpartition("/")[2]
"""Name of the sweep of the pilot runs."""


@dataclass(frozen=True)
class PlanVersion:
    """A version of the plan of a comparison."""

    digest: str  # digest of the plan
    time: str  # when it was written, UTC, in ISO 8601
    grown: tuple[str, ...] = ()  # additions to the previous version; empty for the first


class ComparisonFolder(Workspace):
    """Paths and files of one comparison. Each sweep synchronizes its own folder.

    comparison.yaml  plans.json  sweeps/<method>-<dataset>-b<batch>/ and sweeps/pilot/ (sweep folders)  references.json
    comparison.json  .md  .html  .csv  .tex
    """

    kind = COMPARISON

    @property
    def versions(self) -> Path:
        return self.path / "plans.json"

    @property
    def references(self) -> Path:
        """What raw pixels and untrained encoders score on the test images."""
        return self.path / FILE

    def read_references(self) -> References:
        return References.read(self.references, self.address_of(self.references))

    @property
    def table(self) -> Path:
        return self.path / "comparison.md"

    def sweep(self, name: str) -> SweepFolder:
        """Return the folder of a sweep of the comparison; symbolic links and wrong names are refused."""
        return self.member(SweepFolder, name, "a sweep")

    @property
    def pilot(self) -> SweepFolder:
        return self.sweep(PILOT)

    def read_plan(self) -> ComparisonPlan:
        where, saved = self.where_of_plan, self.load_plan()
        try:
            plain = typed(saved, _SavedComparison)
            sweeps = tuple(
                PlannedSweep(each.method, each.task, each.arm, plan_of(each.sweep, f"{where}, {name}"))
                for name, each in plain.sweeps.items()
            )
            if wrong := [name for name in plain.sweeps if not is_folder_name(name)]:
                raise ValueError(f"not the name of a sweep's folder: {wrong[0]!r}")
            if [planned.name for planned in sweeps] != list(plain.sweeps):
                raise ValueError("a sweep whose name does not say what it is of")
        except ValueError as error:
            raise RunError(f"{where} is not a comparison's plan, got {error}; restore the file") from error
        return ComparisonPlan(plain.asked, sweeps, plain.digest)

    def read_versions(self) -> tuple[PlanVersion, ...]:
        """Return all versions of the plan, oldest first."""
        if not self.versions.exists():
            return ()
        where = self.address_of(self.versions)
        return read_typed(self.versions, tuple[PlanVersion, ...], where, what="not the plans of a comparison")

    def write_plan(self, plan: ComparisonPlan, grown: Sequence[str] = ()) -> None:
        """Write a plan, and before it its version, with what it adds to the version before."""
        versions, text = self.read_versions(), yaml.safe_dump(asdict(_saved(plan, plan.digest)), sort_keys=False)
        if not any(each.digest == plan.digest for each in versions[-1:]):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            versions = (*versions, PlanVersion(plan.digest, now, tuple(grown)))
            atomic.write_json(self.versions, list(map(asdict, versions)))
        atomic.write_text(self.plan, text)


SAME_SECTIONS = ("data", "views", "encoder", "evaluation")
"""Sections that must be the same for all methods unless the request allows them to differ."""
EPOCHS, BATCH_SIZE = "training.epochs", "training.batch_size"
SEEDS_APART = 1_000
"""Offset between the seeds of successive repeats of the search."""
MOST_PRACTICE = 10
"""A search with a time budget has at most this many times the trials of the random search."""


def make_comparison(request: ComparisonRequest, epochs_of: Mapping[Key, int] | None = None) -> ComparisonPlan:
    """Return the plan of a comparison; ``epochs_of`` are those of the runs of each method, if they differ."""
    if lines := request.problems():
        raise ConfigError(lines)
    problems: dict[str, None] = {}  # ordered set of lines
    wrong = dict[str, dict[str, None]]()  # by line, where it is wrong
    sweeps = []
    for task in _tasks(request, problems):
        configs = _configs(request, task, epochs_of or {}, problems)
        problems |= dict.fromkeys(_not_the_same(request, configs))
        for arm in ("draws", "practice") if request.practice_seconds else ("draws",):
            for method, config in configs.items():
                try:
                    sweeps.append(PlannedSweep(method, task, arm, _sweep(request, config, arm)))
                except ConfigError as error:
                    for line in error.problems:
                        wrong.setdefault(line, {})[f"{method} at batch size {task.batch_size}"] = None
    problems |= {f"{' and '.join(where)}: {line}": None for line, where in wrong.items()}
    problems |= dict.fromkeys(_shared_folders(sweeps))
    if problems:
        raise ConfigError(list(problems))
    return ComparisonPlan(request, tuple(sweeps))


def _shared_folders(sweeps: Iterable[PlannedSweep]) -> Iterator[str]:
    """Yield a line for each two datasets whose sweeps would share a folder, since their short names are equal."""
    first: dict[str, str] = {}
    for planned in sweeps:
        other, own = first.setdefault(planned.name, planned.task.dataset), planned.task.dataset
        if other != own:
            yield f"--dataset: {other} and {own} have one name for results, {short_name(own)}; rename one of them"


def _tasks(request: ComparisonRequest, problems: dict[str, None]) -> Iterator[Task]:
    """Yield the tasks; if the request names no dataset, that of the settings is used."""
    datasets: Iterable[str] = request.datasets
    if not datasets:
        first = _configs(request, Task("", request.batch_sizes[0]), {}, problems).get(request.methods[0])
        if first is None:
            return
        datasets = (first.data.name,)
    for repeat in range(request.repeats):
        for dataset in datasets:
            for batch_size in request.batch_sizes:
                yield Task(dataset, batch_size, repeat)


def _configs(
    request: ComparisonRequest, task: Task, epochs_of: Mapping[Key, int], problems: dict[str, None]
) -> dict[str, ExperimentConfig]:
    """Return the settings of the methods whose settings are valid; a problem common to all methods is added once."""
    configs, wrong = {}, dict[str, list[str]]()
    for method in request.methods:
        try:
            configs[method] = _config(request, method, task, epochs_of.get((method, task.dataset, task.batch_size)))
        except ConfigError as error:
            wrong[method] = error.problems
    shared = [] if configs else [line for line in wrong[request.methods[0]] if all(line in w for w in wrong.values())]
    problems |= dict.fromkeys(shared)
    for method, lines in wrong.items():
        problems |= dict.fromkeys(f"{method}: {line}" for line in lines if line not in shared)
    return configs


def _config(request: ComparisonRequest, method: str, task: Task, epochs: int | None) -> ExperimentConfig:
    asked = {
        "data.name": task.dataset or None,
        "data.root": request.data_root,
        BATCH_SIZE: task.batch_size,
        EPOCHS: epochs or request.epochs,
    }
    own = request.assignments_of[method]
    for key in ("data.name", BATCH_SIZE):
        if any(text.partition("=")[0].strip() == key for text in own):
            option = "--dataset" if key == "data.name" else "--batch-size"
            raise ConfigError([f"--set {key}: what is compared has an option; write {option}"])
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in asked.items() if value is not None]
    config = compose(method, request.recipe, None, [*own, *overrides])
    objective = config.evaluation.objective
    if objective not in ANSWERED:
        raise ConfigError(
            [f"evaluation.objective: a comparison is of accuracies, got {objective}; {did_you_mean('', ANSWERED)}"]
        )
    return replace(config, seed=config.seed + SEEDS_APART * task.repeat)


def _not_the_same(request: ComparisonRequest, configs: Mapping[str, ExperimentConfig]) -> Iterator[str]:
    """Yield a line for each setting of ``SAME_SECTIONS``, or epochs, that differs between methods but must not."""
    known = [f"{section}.{name}" for section in SAME_SECTIONS for name in settings_of(SECTIONS[section])] + [EPOCHS]
    for name in request.may_differ:
        if name not in known and name not in SAME_SECTIONS:
            sections = ", ".join(SAME_SECTIONS)
            meant = did_you_mean(name, known, "--may-differ")
            yield f"--may-differ: no such setting of {sections}, got {name}; {meant}"
    differ = different_settings(configs, (*SAME_SECTIONS, "training"))
    for key, values in differ.items():
        if key not in known or (key == EPOCHS and request.budget == "seconds"):
            continue
        if key not in request.may_differ and key.partition(".")[0] not in request.may_differ:
            each = ", ".join(f"{method} {as_written(value)}" for method, value in values.items())
            first = next(iter(values.values()))
            yield (
                f"{key}: not the same for all methods: {each}; such settings decide comparisons: write "
                f"--set {key}={as_written(first)} for all, or --may-differ {key}"
            )


def different_settings(
    configs: Mapping[str, ExperimentConfig], sections: Iterable[str]
) -> dict[str, dict[str, object]]:
    """Return the settings of ``sections`` that differ between methods: values by method, by dotted key."""
    plain = {method: to_mapping(config) for method, config in configs.items()}
    found = {}
    for section in sections:
        for name in next(iter(plain.values()))[section] if plain else ():
            values = {method: config[section][name] for method, config in plain.items()}
            if len({repr(value) for value in values.values()}) > 1:
                found[f"{section}.{name}"] = values
    return found


def _sweep(request: ComparisonRequest, config: ExperimentConfig, arm: Arm) -> SweepPlan:
    """Return the plan of one sweep: the method's search space without the settings that the comparison fixes."""
    own = request.space_of.get(config.method_name)
    space = load_space(own, known_method(config))
    searched = {name for name in space.by_name if name.partition(".")[0] == "views" or name == BATCH_SIZE}
    _require_inside(space, config.training.batch_size)
    left = space.without(searched)
    if not left.parameters:
        raise ConfigError([f"{space.where}: nothing is searched beside views and batch size; name another by --space"])
    fixed = f" without {', '.join(sorted(searched))}" if searched else ""
    asked = SweepRequest(
        space=Space(left.parameters, f"{space.where}{fixed}"),
        search="random" if arm == "draws" else "tpe",
        scheduler="none" if arm == "draws" else "asha",
        trials=(request.trials + 1) * (MOST_PRACTICE if arm == "practice" else 1),
        top=1,
        seeds=request.seeds,
        baseline=arm == "draws",
    )
    plan = make_plan(config, asked)
    return replace(plan, tested="all", search_seconds=request.practice_seconds if arm == "practice" else 0.0)


def _require_inside(space: Space, batch_size: int) -> None:
    """Refuse a batch size outside the range for which the method's search space was designed."""
    parameter = space.by_name.get(BATCH_SIZE)
    if parameter is not None and parameter.is_numeric and not min(parameter.ends) <= batch_size <= max(parameter.ends):
        raise ConfigError(
            [
                f"--batch-size: outside the range of {space.where}, which is {parameter.in_words()}; "
                "name a space that was made for it by --space"
            ]
        )
