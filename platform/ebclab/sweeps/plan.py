"""The plan of a sweep: settings, space, rules and budgets. It is written once, and compared on resume."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml

from ebclab.config import ExperimentConfig, did_you_mean, parse_experiment, to_mapping
from ebclab.config.check import Problems, check_section, settings_of
from ebclab.config.options import option_problems, values_of
from ebclab.config.recipes import fitting_warmup
from ebclab.config.yaml_text import JsonObject, Plain, from_yaml
from ebclab.errors import ConfigError, RunError, UserError
from ebclab.evaluation.comparison import ENOUGH_SEEDS
from ebclab.formatting import count
from ebclab.methods_by_name import Methods
from ebclab.runs.resume import changed_settings, refuse_changes
from ebclab.storage import atomic
from ebclab.storage.reading import typed
from ebclab.sweeps.policies.stopping import StopRules
from ebclab.sweeps.request import Scheduler, SweepChoices, SweepRequest
from ebclab.sweeps.space.check import apply_settings, fitting_space
from ebclab.sweeps.space.space import Settings, Space, own_settings, parse_space

TRIALS = 16
FEW_SEEDS = 3
WARMUP = "optimizer.warmup_epochs"
T = TypeVar("T")
Tested = Literal["winner", "all"]
MAY_CHANGE = (
    *("trials", "top", "seeds", "baseline", "format"),
    *("config.data.root", "config.resources.", "config.training.loggers"),
)
"""What may differ on resume: a key, or a whole section when the entry ends in a dot."""


@dataclass(frozen=True)
class Population:
    """How trials copy each other's weights, under population based training."""

    interval_epochs: int  # epochs from one exchange to the next
    # share of the population, at the lower end, that copies, and at the upper end, that is copied
    quantile: float = 0.25
    # probability that a setting is drawn from its range instead of being multiplied by a factor
    resample_rate: float = 0.25


@dataclass(frozen=True, kw_only=True)
class SweepPlan(SweepChoices):
    """Everything that defines a sweep; ``config`` has the settings of every trial, except the searched ones."""

    # training time, according to the log, for which the search proposes trials; running trials count as if none stopped
    # early. 0 means that only ``trials`` ends the search
    search_seconds: float = 0.0
    tested: Tested = "winner"  # which confirmed settings are tested: the winner and the starting settings, or all
    rules: StopRules
    population: Population
    space: Space
    config: ExperimentConfig

    def __post_init__(self) -> None:
        """Refuse a plan that leaves a choice open, such as one from a file without it."""
        if missing := [name for name, value in values_of(SweepChoices, self).items() if value is None]:
            raise ValueError(f"{', '.join(missing)}: missing")

    @property
    def request(self) -> SweepRequest:
        """Request from which ``make_plan`` makes this plan."""
        rules = asdict(self.rules)
        return SweepRequest(
            **values_of(SweepChoices, self),
            space=self.space,
            scheduler=rules.pop("scheduler"),
            rules=tuple(f"{key}={value}" for key, value in rules.items()),
            interval_epochs=self.population.interval_epochs,
        )

    def problems(self) -> list[str]:
        """Return what is wrong or does not fit together, one line per problem."""
        lines = option_problems(self)
        pbt = self.rules.scheduler == "pbt"
        if pbt and self.search != "random":
            lines.append(
                f"--search: population based training itself changes settings during a run, got {self.search}; "
                "use --search random with it, or --scheduler asha"
            )
        if pbt and self.trials < 4:
            lines.append(f"--trials: a population needs at least 4 members to choose among, got {self.trials}")
        if self.top > max(self.trials, 0):
            lines.append(
                f"--top: more settings than trials, got {self.top} of {self.trials}; use at most {self.trials}"
            )
        if self.top and self.seeds < 1:
            lines.append(f"--seeds: at least one, got {self.seeds}; or confirm nothing with --top 0")
        if pbt and 1 < self.epochs <= self.population.interval_epochs:
            lines.append(
                f"--interval: no exchange in {self.epochs} epochs, got {self.population.interval_epochs}; "
                "make it smaller"
            )
        if self.top and self.epochs > self.config.training.epochs:
            lines.append(
                f"--epochs: a search must not train longer than the runs that confirm it, got {self.epochs} > "
                f"{self.config.training.epochs}; set training.epochs={self.epochs} too"
            )
        recorded = to_mapping(self.config)["training"]
        lines += [
            f"training.{name}: is for runs, not for sweeps, got {recorded[name]}; leave it out"
            for name in ("extended", "copied_weights")
            if recorded[name]
        ]
        if self.config.data.holdout_rate == 0:
            lines.append(
                "data.holdout_rate: a sweep chooses by held-out images, got 0; use 0.1, and the test set stays unseen"
            )
        return lines

    @property
    def start(self) -> Settings:
        """The starting settings of the search: what ``config`` has for the settings in ``space``."""
        return own_settings(self.space, self.config)

    @property
    def confirming_seeds(self) -> range:
        """Seeds of the confirming runs; none is the seed of the search."""
        return range(self.config.seed + 1, self.config.seed + 1 + self.seeds)

    @property
    def confirming_runs(self) -> int:
        """Number of confirming runs, if the starting settings are not among the best."""
        return (self.top + (self.baseline and self.top > 0)) * self.seeds

    def longest_epochs(self, concurrent: int) -> int:
        """Return the epochs that follow each other if so many trials run at once and none is stopped early."""
        search, confirmation = (-(-runs // concurrent) for runs in (self.trials, self.confirming_runs))
        return search * self.epochs + confirmation * self.config.training.epochs

    def epochs_in_words(self) -> str:
        """Return how long the trials of the search train, and how long those that confirm the best."""
        words, full = f"at most {count(self.epochs, 'epoch')} each", self.config.training.epochs
        if not self.top or full == self.epochs:
            return words
        return f"{words}, then {full} for those that confirm the best (training.epochs; --epochs is for the search)"

    def to_mapping(self) -> JsonObject:
        """Return the plan as plain values, as sweep.yaml holds them."""
        plain = {"space": self.space.to_mapping(), "config": to_mapping(self.config)}
        plain |= {"rules": asdict(self.rules), "population": asdict(self.population)}
        return {"format": 1, **vars(self), **plain}


def make_plan(config: ExperimentConfig, asked: SweepRequest | None = None) -> SweepPlan:
    """Return the plan of a sweep; all mistakes are reported at once.

    ``config`` has the settings of every trial, except the searched ones; its ``training.epochs`` are the full budget.
    """
    asked, problems = asked or SweepRequest(), Problems()
    problems.lines += option_problems(asked)
    scheduler = asked.scheduler or "asha"
    stop_rules = _rules(scheduler, asked.rules, problems)
    search = asked.search or ("random" if scheduler == "pbt" else "tpe")
    try:
        space, unfit = fitting_space(asked.space, config, searched_live_only=stop_rules.scheduler == "pbt")
    except ConfigError as error:  # there is none to check
        raise ConfigError(problems.lines + error.problems) from error
    problems.lines += unfit
    count = space.grid_size if search == "grid" else _given(asked.trials, TRIALS)
    if search == "grid" and asked.trials not in (None, count):
        problems.add("--trials", f"the grid has {count} points, got {asked.trials}; leave --trials out or thin it")
    budget = _given(asked.epochs, config.training.epochs)
    best = _given(asked.top, min(3, max(count, 0)))
    baseline = _given(asked.baseline, True)
    if asked.confirm_split and config.data.confirm_rate == 0:
        config = replace(config, data=replace(config.data, confirm_rate=config.data.holdout_rate))
    plan = SweepPlan(
        config=config,
        space=space,
        search=search,
        rules=stop_rules,
        population=Population(_given(asked.interval_epochs, max(1, budget // 5))),
        trials=count,
        epochs=budget,
        top=best,
        seeds=_given(asked.seeds, _seeds(best + baseline, config.training.epochs, count * budget)),
        baseline=baseline,
    )
    if lines := [*dict.fromkeys(problems.lines + plan.problems())]:
        raise ConfigError(lines)
    return plan


def _given(value: T | None, usual: T) -> T:
    return usual if value is None else value


def _seeds(num_settings: int, epochs: int, search_epochs: int) -> int:
    """Return ENOUGH_SEEDS if confirming the settings with so many takes fewer epochs than the search, else 3."""
    return ENOUGH_SEEDS if num_settings * ENOUGH_SEEDS * epochs < search_epochs else FEW_SEEDS


def _rules(scheduler: str, rules: Iterable[str], problems: Problems) -> StopRules:
    """Return the stopping rules; add to ``problems`` what is wrong with them."""
    known = settings_of(StopRules)
    given: dict[str, Any] = {"scheduler": scheduler} if scheduler in get_args(Scheduler) else {}
    for text in rules:
        key, equals, value = text.partition("=")
        if not equals:
            problems.add("--rule", f"no = found, got {text!r}; write {key.strip() or 'KEY'}=VALUE")
            continue
        given[key.strip()] = from_yaml(value, where=f"--rule {key.strip()}")
    own = Problems()
    unknown = "--rule.{0}: no such rule; {1}"
    read: StopRules = check_section(
        "--rule", StopRules, given, lambda name: unknown.format(name, did_you_mean(name, known)), own
    )
    problems.lines += [line.replace("--rule.", "--rule ", 1) for line in own.lines]
    return read


def trial_config(
    config: ExperimentConfig,
    settings: Settings,
    *,
    seed: int,
    epochs: int,
    confirms: bool = False,
) -> ExperimentConfig:
    """Return the settings of one trial. Trials are scored and saved after every epoch, so that they can stop there.

    A warm-up that is not searched is shortened as ``fitting_warmup`` says. A trial that ``confirms`` settings is scored
    on the images kept for that, if there are any.
    """
    chosen = apply_settings(config, settings)
    if WARMUP not in settings:
        warmup = fitting_warmup(config.optimizer.warmup_epochs, config.training.epochs, epochs)
        chosen = replace(chosen, optimizer=replace(chosen.optimizer, warmup_epochs=warmup))
    chosen = replace(
        chosen,
        seed=seed,
        training=replace(chosen.training, epochs=epochs, checkpoint_every=1),
        evaluation=replace(
            chosen.evaluation,
            knn_every=1,
            scored_on="confirm" if confirms and chosen.data.confirm_rate else "holdout",
        ),
    )
    if problems := chosen.problems():
        raise ConfigError(problems)
    return chosen


@dataclass(frozen=True)
class _Parts:
    """What sweep.yaml holds as mappings that have readers of their own."""

    space: Plain
    config: Plain


def write_plan(path: Path, plan: SweepPlan) -> None:
    """Write a plan as YAML."""
    atomic.write_text(path, yaml.safe_dump(plan.to_mapping(), sort_keys=False))


def plan_of(saved: Any, where: str, methods: Methods | None = None) -> SweepPlan:
    """Return the plan that ``SweepPlan.to_mapping`` turned into ``saved``; messages call its file ``where``."""
    try:
        plain = typed(saved, _Parts)
        parts = {"space": parse_space(plain.space, where), "config": parse_experiment(plain.config, methods)}
        plan = typed(saved | parts, SweepPlan)
        StopRules(**saved["rules"])  # raises for unknown keys, which ``typed`` ignores
        Population(**saved["population"])
    except (ValueError, TypeError) as error:
        raise RunError(f"{where} is not a sweep's plan, got {error}; restore the file") from error
    return plan


def require_same(before: SweepPlan, now: SweepPlan, where: str | Path) -> None:
    """Refuse to resume a sweep with another plan; trials, confirmation and resources may change."""
    changed = changed_settings(before.to_mapping(), now.to_mapping(), MAY_CHANGE, what="sweep")
    advice = "choose another --name, or use the settings of the sweep"
    refuse_changes(where, changed, f"this sweep was started with other settings; {advice}")
    if now.trials < before.trials:
        raise UserError(f"--trials: a resumed sweep may grow, not shrink, got {now.trials}; it has {before.trials}")
