"""Make the plan of a comparison from a request; all problems are reported at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ebclab.compare.plan import Arm, ComparisonPlan, PlannedSweep, Task
from ebclab.compare.request import ComparisonRequest, wrong_names
from ebclab.config import ExperimentConfig, compose, did_you_mean, to_mapping
from ebclab.config.check import as_written
from ebclab.config.experiment import SECTIONS, settings_of
from ebclab.data.sources.location import short_name
from ebclab.errors import ConfigError
from ebclab.evaluation.objectives import ANSWERED
from ebclab.storage.object_store import fetched
from ebclab.sweeps.plan import SweepPlan, make_plan
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.space.space import Space, load_space

SAME_SECTIONS = ("data", "views", "encoder", "evaluation")
"""Sections that must be the same for all methods unless the request allows them to differ."""
EPOCHS, BATCH_SIZE = "training.epochs", "training.batch_size"
SEEDS_APART = 1_000
"""Offset between the seeds of successive repeats of the search."""
MOST_PRACTICE = 10
"""A search with a time budget has at most this many times the trials of the random search."""

EpochsOf = Mapping[tuple[str, str, int], int]
"""Epochs by method, dataset and batch size, for runs of equal training time."""


def make_comparison(request: ComparisonRequest, epochs_of: EpochsOf | None = None) -> ComparisonPlan:
    """Return the plan of a comparison; ``epochs_of`` are those of the runs of each method, if they differ."""
    lines = request.problems() + wrong_names(request)
    if lines:
        raise ConfigError(lines)
    problems: dict[str, None] = {}  # ordered set of lines
    sweeps = []
    for task in _tasks(request, problems):
        configs = _configs(request, task, epochs_of or {}, problems)
        problems |= dict.fromkeys(_not_the_same(request, configs))
        for arm in ("draws", "practice") if request.practice_seconds else ("draws",):
            for method, config in configs.items():
                try:
                    sweeps.append(PlannedSweep(method, task, arm, _sweep(request, config, arm)))
                except ConfigError as error:
                    problems |= dict.fromkeys(f"{method} at batch size {task.batch_size}: {p}" for p in error.problems)
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
    request: ComparisonRequest, task: Task, epochs_of: EpochsOf, problems: dict[str, None]
) -> dict[str, ExperimentConfig]:
    """Return the settings of the methods whose settings are valid; a problem common to all methods is added once."""
    configs, wrong = {}, dict[str, list[str]]()
    for method in request.methods:
        try:
            configs[method] = _config(request, method, task, epochs_of.get((method, *task[:2])))
        except ConfigError as error:
            wrong[method] = error.problems
    shared = [] if configs else [line for line in wrong[request.methods[0]] if all(line in w for w in wrong.values())]
    problems |= dict.fromkeys(shared)
    for method, lines in wrong.items():
        problems |= dict.fromkeys(f"{method}: {line}" for line in lines if line not in shared)
    return configs


def _config(request: ComparisonRequest, method: str, task: Task, epochs: int | None) -> ExperimentConfig:
    """Return the settings of a method on a task."""
    asked = {
        "data.name": task.dataset or None,
        "data.root": request.data_root,
        BATCH_SIZE: task.batch_size,
        EPOCHS: epochs or request.epochs,
    }
    own = request.assignments_for(method)
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
            yield f"--may-differ: no such setting of {sections}, got {name}; {did_you_mean(name, known)}"
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


def different_settings(configs: Mapping[str, ExperimentConfig], sections: Iterable[str]) -> dict[str, dict[str, Any]]:
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
    own = request.space_for(config.method_name)
    space = load_space(None if own is None else fetched(own), config.method_name)
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
                f"--batch-size: outside the range of {space.where}, got {batch_size}; the range is "
                f"{parameter.in_words()}; name a space that was made for it by --space"
            ]
        )
