"""What a sweep is: settings, space, rules and budgets, written once and compared when it is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from ebclab.config import ExperimentConfig, load_yaml_file, parse_experiment, to_mapping
from ebclab.config.names import other_folder
from ebclab.errors import ConfigError, RunError, UserError
from ebclab.runs.resume import changed_settings
from ebclab.storage import atomic
from ebclab.sweeps.policies.stopping import StopRules
from ebclab.sweeps.space.check import apply_settings
from ebclab.sweeps.space.space import Space, parse_space
from energy_contrast.method import Method

Search = Literal["tpe", "random", "grid"]
MAY_CHANGE = ("trials", "top", "seeds", "baseline", "config.data.root", "config.resources.", "format")
"""What may differ when a sweep is resumed: a key, or a section when it ends in a dot."""


@dataclass(frozen=True)
class Population:
    """How trials take over from each other, under population based training.

    Attributes:
        interval_epochs: Epochs from one exchange to the next.
        quantile: Share of the worst that take over, and of the best that they take after.
        resample_rate: How often a setting is drawn anew instead of being nudged.
    """

    interval_epochs: int
    quantile: float = 0.25
    resample_rate: float = 0.25


@dataclass(frozen=True)
class SweepPlan:
    """A sweep, resolved.

    Attributes:
        config: Settings of every trial but for those that are searched; ``training.epochs`` is the full budget.
        space: What is searched.
        search: How trials are proposed.
        rules: When trials are stopped.
        population: How they take over from each other.
        trials: Trials of the search.
        epochs: Budget of a trial of the search.
        top: How many of the best settings are run again at full budget; 0 confirms none.
        seeds: How many seeds each of them is run with.
        baseline: Also confirm the settings that the search started from.
    """

    config: ExperimentConfig
    space: Space
    search: Search
    rules: StopRules
    population: Population
    trials: int
    epochs: int
    top: int
    seeds: int
    baseline: bool

    def problems(self) -> list[str]:
        """Return what does not fit together, one line each, empty when all is well."""
        found = []
        pbt = self.rules.scheduler == "pbt"
        if pbt and self.search != "random":
            found.append(
                f"--search: population based training changes settings in mid-run by itself, got {self.search}; "
                "use --search random with it, or --scheduler asha"
            )
        if self.trials < 1:
            found.append(f"--trials: at least one, got {self.trials}")
        if pbt and self.trials < 4:
            found.append(f"--trials: a population needs at least 4 members to choose among, got {self.trials}")
        if self.top < 0:
            found.append(f"--top: at least 0, got {self.top}; 0 confirms nothing")
        if self.top > self.trials:
            found.append(
                f"--top: more settings than trials, got {self.top} of {self.trials}; use at most {self.trials}"
            )
        if self.top and self.seeds < 1:
            found.append(f"--seeds: at least one, got {self.seeds}; or confirm nothing with --top 0")
        if self.population.interval_epochs < 1:
            found.append(f"--interval: at least one epoch, got {self.population.interval_epochs}")
        if pbt and 1 < self.epochs <= self.population.interval_epochs:
            found.append(
                f"--interval: no exchange in {self.epochs} epochs, got {self.population.interval_epochs}; "
                "make it smaller"
            )
        if self.epochs < 1:
            found.append(f"--epochs: at least one, got {self.epochs}")
        if self.top and self.epochs > self.config.training.epochs:
            found.append(
                f"--epochs: a search must not train longer than the runs that confirm it, got {self.epochs} > "
                f"{self.config.training.epochs}; set training.epochs={self.epochs} too"
            )
        if self.config.data.holdout_rate == 0:
            found.append(
                "data.holdout_rate: a sweep chooses by held-out images, got 0; use 0.1, and the test set stays unseen"
            )
        return found

    def to_mapping(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "format": 1,
            "search": self.search,
            "trials": self.trials,
            "epochs": self.epochs,
            "top": self.top,
            "seeds": self.seeds,
            "baseline": self.baseline,
            "rules": asdict(self.rules),
            "population": asdict(self.population),
            "space": self.space.to_mapping(),
            "config": to_mapping(self.config),
        }


def trial_config(
    config: ExperimentConfig,
    settings: Mapping[str, Any],
    *,
    seed: int,
    epochs: int,
) -> ExperimentConfig:
    """Return the settings of one trial: scored and saved after every epoch, so that it can stop and go on anywhere.

    Args:
        config: Settings that are not searched.
        settings: Searched settings by dotted key.
        seed: Seed of the run.
        epochs: Its budget.

    Raises:
        ConfigError: They contradict each other.
    """
    chosen = apply_settings(config, settings)
    chosen = replace(
        chosen,
        seed=seed,
        training=replace(chosen.training, epochs=epochs, checkpoint_every=1),
        evaluation=replace(chosen.evaluation, knn_every=1),
    )
    if problems := chosen.problems():
        raise ConfigError(problems)
    return chosen


def write_plan(path: Path, plan: SweepPlan) -> None:
    """Write a plan as YAML."""
    atomic.write_text(path, yaml.safe_dump(plan.to_mapping(), sort_keys=False))


def read_plan(path: Path, methods: Mapping[str, type[Method]] | None = None, where: str = "") -> SweepPlan:
    """Return the plan that ``write_plan`` wrote.

    Args:
        path: The file.
        methods: Methods by name; None takes the catalogue's.
        where: What messages call its folder, when that is not the file's own.

    Raises:
        UserError: There is none, or it cannot be read.
    """
    where = where or str(path.parent)
    if not path.is_file():
        way_out = other_folder(where, path.name, "`ebclab sweep` makes sweeps")
        raise RunError(f"{where}: no sweep here, {path.name} is missing; {way_out}")
    saved = load_yaml_file(path, f"{where}: {path.name}")
    try:
        return SweepPlan(
            config=parse_experiment(saved["config"], methods),
            space=parse_space(saved["space"], f"{where}: {path.name}"),
            rules=StopRules(**saved["rules"]),
            population=Population(**saved["population"]),
            **{key: saved[key] for key in ("search", "trials", "epochs", "top", "seeds", "baseline")},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{where}: {path.name} is not a sweep's plan, got {error}; restore the file") from error


def require_same(before: SweepPlan, now: SweepPlan, where: str | Path) -> None:
    """Refuse to resume a sweep with another plan; trials, confirmation and resources may change.

    Raises:
        RunError: What differs, line by line.
        UserError: Fewer trials are asked for than there were.
    """
    changed = changed_settings(before.to_mapping(), now.to_mapping(), MAY_CHANGE, what="sweep")
    if changed:
        lines = "".join(f"\n  {line}" for line in changed)
        raise RunError(
            f"{where}: this sweep was begun otherwise; choose another --name, or resume it as it was:{lines}"
        )
    if now.trials < before.trials:
        raise UserError(f"--trials: a resumed sweep may grow, not shrink, got {now.trials}; it has {before.trials}")
