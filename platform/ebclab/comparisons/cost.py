"""Cost of a comparison, and preflight checks of its sweeps, measured with a few training steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ebclab.comparisons.plan import ComparisonPlan, EpochsOf, PlannedSweep
from ebclab.config.experiment import ExperimentConfig, methods_of
from ebclab.data.holdout import Split
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.load import load_split, splits_of
from ebclab.errors import ConfigError, DataError, UserError
from ebclab.runs.references import UNTRAINED, Protocol
from ebclab.sweeps.forecast import epoch_seconds, reading_seconds
from ebclab.sweeps.preflight import require_judgeable, require_trainable
from ebclab.training.setup import load_images


@dataclass(frozen=True)
class SweepCost:
    """Upper bounds of the cost of a sweep, if no trial diverges and tuned settings cost as much as default ones."""

    planned: PlannedSweep
    run_seconds: float  # training time of one run
    runs: int  # number of runs, including confirmation runs

    @property
    def seconds(self) -> float:
        """Total training time of all runs."""
        if self.planned.arm == "practice":
            confirming = self.planned.plan.seeds * self.planned.plan.top * self.run_seconds
            return self.planned.plan.search_seconds + self.run_seconds + confirming
        return self.run_seconds * self.runs


class ImagesOf:
    """The images of the sweeps of a comparison; each dataset is read once."""

    def __init__(self) -> None:
        self._known: dict[str, Split] = {}

    def __call__(self, planned: PlannedSweep) -> Split:
        """Return the images of a sweep."""
        if planned.task.dataset not in self._known:
            self._known[planned.task.dataset] = load_images(planned.plan.config)
        return self._known[planned.task.dataset]


def require_runnable(plan: ComparisonPlan) -> list[str]:
    """Refuse a comparison with a sweep that could not run; return warnings."""
    images, problems, warnings = ImagesOf(), dict[str, None](), dict[str, None]()
    for dataset in dict.fromkeys(task.dataset for task in plan.tasks):
        if "test" not in splits_of(dataset):
            problems[f"data.name: methods are compared on test images, got {dataset}, which has none"] = None
    for planned in _different(plan):
        where = f"{planned.method} at batch size {planned.task.batch_size}"
        try:
            split = images(planned)
            require_judgeable(planned.plan, split)
            lines = require_trainable(planned.plan, split, methods_of(planned.plan.config))
            warnings |= dict.fromkeys(f"{where}: {line}" for line in lines)
        except DataError:
            raise
        except ConfigError as error:
            problems |= dict.fromkeys(f"{where}: {line}" for line in error.problems)
        except UserError as error:
            problems[str(error)] = None
    if problems:
        raise ConfigError(list(problems))
    if plan.request.practice_seconds:
        _require_time_for_one_trial(costs(plan))
    return list(warnings)


def _require_time_for_one_trial(found: list[SweepCost]) -> None:
    """Refuse a time budget that is too short for one trial of a method."""
    short = [
        each for each in found if each.planned.arm == "practice" and each.run_seconds > each.planned.plan.search_seconds
    ]
    if short:
        raise ConfigError(
            [
                f"--practice: less than one trial of {each.planned.method} at batch size "
                f"{each.planned.task.batch_size}, got {each.planned.plan.search_seconds:g} s; one takes "
                f"about {each.run_seconds:.0f} s"
                for each in short
            ]
        )


def costs(plan: ComparisonPlan) -> list[SweepCost]:
    """Return the maximum cost of each sweep, from measuring a few steps of each method at each batch size."""
    images, known = ImagesOf(), dict[tuple[str, str, int], float]()
    found = []
    for planned in plan.sweeps:
        key, sweep = _key(planned), planned.plan
        if key not in known:
            threads = max(1, sweep.config.resources.threads)
            known[key] = epoch_seconds(sweep.config, images(planned), methods_of(sweep.config), threads=threads)
        seconds = known[key] * sweep.config.training.epochs
        found.append(SweepCost(planned, seconds, sweep.trials + (sweep.top + sweep.baseline) * sweep.seeds))
    return found


def reading_cost(plan: ComparisonPlan) -> tuple[int, float]:
    """Return how often the test images are read, references included, and how long all of it takes."""
    images, probe = ImagesOf(), plan.request.metric
    one, seeds = dict[str, float](), dict[str, set[int]]()
    number, seconds = 0, 0.0
    for planned in plan.sweeps:
        config, sweep = planned.plan.config, planned.plan
        key = Protocol(config, config.data.train_limit, probe).key(UNTRAINED)
        if key not in one:
            one[key] = reading_seconds(config, probe, images(planned), num_test_images(config))
        seeds.setdefault(key, set()).update(sweep.confirming_seeds)
        runs = (sweep.top + sweep.baseline) * sweep.seeds
        number, seconds = number + runs, seconds + runs * one[key]
    beside = {key: len(each) + 1 for key, each in seeds.items()}  # untrained encoders, and raw pixels
    return number + sum(beside.values()), seconds + sum(one[key] * reads for key, reads in beside.items())


def num_test_images(config: ExperimentConfig) -> int:
    """Return the number of test images."""
    return len(load_split(config.data.name, config.data.root, "test", Reading.of(config.data)))


def equal_seconds(plan: ComparisonPlan, before: ComparisonPlan | None) -> EpochsOf:
    """Return epochs for which runs of all methods take as long as the first method's, for each batch size.

    In ``plan`` all methods train for the same number of epochs. The epochs of a plan to continue, ``before``, are kept.
    """
    epochs = {_key(planned): planned.plan.config.training.epochs for planned in before.sweeps} if before else {}
    if all(_key(planned) in epochs for planned in plan.sweeps):
        return epochs
    seconds = {_key(each.planned): each.run_seconds for each in costs(plan)}
    problems = dict[str, None]()
    for planned in (planned for planned in plan.sweeps if _key(planned) not in epochs):
        first = seconds[plan.request.methods[0], planned.task.dataset, planned.task.batch_size]
        own = seconds[_key(planned)] / planned.plan.config.training.epochs
        epochs[_key(planned)] = round(first / own)
        if own > first:
            where = f"{planned.method} at batch size {planned.task.batch_size}"
            got = f"got {first:.3g} s, those of a run of {plan.request.methods[0]}"
            line = f"--budget seconds: less than one epoch of {where}, {got}; one takes {own:.3g} s: raise --epochs"
            problems[line] = None
    if problems:
        raise ConfigError(list(problems))
    return epochs


def _key(planned: PlannedSweep) -> tuple[str, str, int]:
    return planned.method, planned.task.dataset, planned.task.batch_size


def _different(plan: ComparisonPlan) -> Iterator[PlannedSweep]:
    """Yield one sweep per method, dataset and batch size."""
    seen = set()
    for planned in plan.sweeps:
        if _key(planned) not in seen:
            seen.add(_key(planned))
            yield planned
