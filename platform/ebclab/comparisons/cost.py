"""Cost of a comparison, and preflight checks of its sweeps, measured with a few training steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ebclab.comparisons.plan import ComparisonFolder, ComparisonPlan, EpochsOf, PlannedSweep
from ebclab.config.experiment import ExperimentConfig, methods_of
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import Split
from ebclab.data.photograph import Reading
from ebclab.data.sources.load import load_split, splits_of
from ebclab.errors import ConfigError, DataError, EbclabError, UserError
from ebclab.runs.jobs import Each, Kept, one_by_one
from ebclab.runs.references import PIXELS, UNTRAINED, Protocol
from ebclab.sweeps.forecast import epoch_seconds, reading_seconds
from ebclab.sweeps.preflight import require_runnable
from ebclab.sweeps.sweep import require_same_images
from ebclab.training.setup import load_images


@dataclass(frozen=True)
class SweepCost:
    """Upper bounds of the cost of a sweep, if no trial diverges and tuned settings cost as much as default ones."""

    planned: PlannedSweep
    run_seconds: float  # training time of one run
    runs: int  # number of runs, including confirmation runs

    @property
    def seconds(self) -> float:
        if self.planned.arm == "practice":
            confirming = self.planned.plan.confirming_runs * self.run_seconds
            return self.planned.plan.search_seconds + self.run_seconds + confirming
        return self.run_seconds * self.runs


def images_trained_on(plan: ComparisonPlan, folder: ComparisonFolder, data: DataConfig) -> set[str]:
    """Return the digests of the images of the sweeps of this data that have begun."""
    same = (each for each in plan.sweeps if each.plan.config.data == data)
    return {folder.sweep(each.name).of("reader").pull().read_log().images for each in same} - {""}


Load = Callable[[DataConfig], Split]
"""Loads the images of a run, the same ones once."""


def check_searches(
    plan: ComparisonPlan, folder: ComparisonFolder | None = None, load: Load | None = None
) -> tuple[dict[DataConfig, str], list[str]]:
    """Refuse a comparison with a sweep that could not run, beside those in ``folder``.

    Return the digests of the images with which sweeps were checked, by their data, and warnings.
    """
    load = load or Kept(load_images)
    digests, problems, warnings = dict[DataConfig, str](), dict[str, None](), dict[str, None]()
    for dataset in dict.fromkeys(task.dataset for task in plan.tasks):
        if "test" not in splits_of(dataset):
            problems[f"data.name: methods are compared on test images, got {dataset}, which has none"] = None
    for planned in _different(plan).values():
        try:
            data = planned.plan.config.data
            split = load(data)
            if folder is not None and data not in digests:
                for begun in images_trained_on(plan, folder, data):
                    require_same_images(folder.address, split, begun)
            digests[data] = split.content
            lines = require_runnable(planned.plan, split, methods_of(planned.plan.config))
            warnings |= dict.fromkeys(f"{planned.where}: {line}" for line in lines)
        except DataError:
            raise
        except ConfigError as error:
            problems |= dict.fromkeys(f"{planned.where}: {line}" for line in error.problems)
        except UserError as error:
            problems[str(error)] = None
    if plan.request.practice_seconds and not problems:
        problems |= {
            f"--practice: less than one trial of {each.planned.where}, got {each.planned.plan.search_seconds:g} s; "
            f"one takes about {each.run_seconds:.0f} s": None
            for each in costs(plan, load=load)
            if each.planned.arm == "practice" and each.run_seconds > each.planned.plan.search_seconds
        }
    if problems:
        raise ConfigError(list(problems))
    return digests, list(warnings)


def costs(plan: ComparisonPlan, each: Each = one_by_one, load: Load | None = None) -> list[SweepCost]:
    """Return the maximum cost of each sweep, from measuring a few steps of each method at each batch size."""
    seconds, load = dict[tuple[str, str, int], float](), load or Kept(load_images)
    for planned, outcome in each(partial(_epoch_seconds, load), [*_different(plan).values()]):
        if isinstance(outcome, EbclabError):
            raise outcome
        seconds[planned.key] = outcome
    return [
        SweepCost(
            planned,
            seconds[planned.key] * planned.plan.config.training.epochs,
            planned.plan.trials + planned.plan.confirming_runs,
        )
        for planned in plan.sweeps
    ]


def _epoch_seconds(load: Load, planned: PlannedSweep) -> float:
    config = planned.plan.config
    threads = max(1, config.resources.threads)
    return epoch_seconds(config, load(config.data), methods_of(config), threads=threads)


def reading_cost(plan: ComparisonPlan, load: Load | None = None) -> tuple[int, float]:
    """Return how often the test images are read, references included, and how long all of it takes."""
    load, probe = load or Kept(load_images), plan.request.metric
    one, beside = dict[str, float](), dict[tuple[str, int], float]()
    number, seconds = 0, 0.0
    for planned in plan.sweeps:
        config, sweep = planned.plan.config, planned.plan
        protocol = Protocol(config, config.data.train_limit, probe)
        key = protocol.key(UNTRAINED)
        if key not in one:
            one[key] = reading_seconds(config, probe, load(config.data), num_test_images(config))
        beside |= {(key, seed): one[key] for seed in sweep.confirming_seeds} | {(protocol.key(PIXELS), 0): one[key]}
        number, seconds = number + sweep.confirming_runs, seconds + sweep.confirming_runs * one[key]
    return number + len(beside), seconds + sum(beside.values())


def num_test_images(config: ExperimentConfig) -> int:
    """Return the number of test images."""
    return len(load_split(config.data.name, config.data.root, "test", Reading.of(config.data)))


def equal_seconds(
    plan: ComparisonPlan,
    before: ComparisonPlan | None,
    measured: Callable[[ComparisonPlan], list[SweepCost]] | None = None,
) -> EpochsOf:
    """Return epochs for which runs of all methods take as long as the first method's, for each batch size.

    In ``plan`` all methods train for the same number of epochs. A plan to continue, ``before``, keeps its epochs, and
    methods that join it have the seconds of its first method. Seconds are ``measured``, by default in this process.
    """
    epochs = {planned.key: planned.plan.config.training.epochs for planned in before.sweeps} if before else {}
    if all(planned.key in epochs for planned in plan.sweeps):
        return epochs
    asked = {planned.key: planned.plan.config.training.epochs for planned in plan.sweeps}
    seconds = {each.planned.key: each.run_seconds / asked[each.planned.key] for each in (measured or costs)(plan)}
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


def _different(plan: ComparisonPlan) -> dict[tuple[str, str, int], PlannedSweep]:
    """Return the first sweep of each method, dataset and batch size."""
    found: dict[tuple[str, str, int], PlannedSweep] = {}
    for planned in plan.sweeps:
        found.setdefault(planned.key, planned)
    return found
