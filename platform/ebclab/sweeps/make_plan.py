"""Makes the plan of a sweep from the user's options; all mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from ebclab.config import ExperimentConfig, did_you_mean
from ebclab.config.check import Problems, check_section
from ebclab.config.experiment import settings_of
from ebclab.config.options import option_problems
from ebclab.config.yaml_text import from_yaml
from ebclab.errors import ConfigError
from ebclab.evaluation.comparison import ENOUGH_SEEDS
from ebclab.sweeps.plan import Population, SweepPlan
from ebclab.sweeps.policies.stopping import StopRules
from ebclab.sweeps.request import Scheduler, SweepRequest
from ebclab.sweeps.space.check import check_space, refused_by_method, why_not_live
from ebclab.sweeps.space.space import Space, load_space

TRIALS = 16
FEW_SEEDS = 3
T = TypeVar("T")


def make_plan(config: ExperimentConfig, asked: SweepRequest | None = None) -> SweepPlan:
    """Return the plan of a sweep.

    Args:
        config: Settings of every trial, except the searched ones; ``training.epochs`` is the full budget.
        asked: What to search and confirm; None means the defaults.

    Raises:
        ConfigError: With every problem found.
    """
    asked, problems = asked or SweepRequest(), Problems()
    problems.lines += option_problems(asked)
    scheduler = asked.scheduler or "asha"
    stop_rules = _rules(scheduler, asked.rules, problems)
    search = asked.search or ("random" if scheduler == "pbt" else "tpe")
    fitting = _fitting_space(asked.space, config, stop_rules, problems)
    count = fitting.grid_size if search == "grid" else _given(asked.trials, TRIALS)
    if search == "grid" and asked.trials not in (None, count):
        problems.add("--trials", f"the grid has {count} points, got {asked.trials}; leave --trials out or thin it")
    budget = _given(asked.epochs, config.training.epochs)
    best = _given(asked.top, min(3, count))
    baseline = _given(asked.baseline, True)
    if asked.confirm_split and config.data.confirm_rate == 0:
        config = replace(config, data=replace(config.data, confirm_rate=config.data.holdout_rate))
    plan = SweepPlan(
        config=config,
        space=fitting,
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
    """Return the value of an option, or the usual one if it is omitted."""
    return usual if value is None else value


def _seeds(num_settings: int, epochs: int, search_epochs: int) -> int:
    """Return ENOUGH_SEEDS if confirming the settings with so many takes fewer epochs than the search, else 3."""
    return ENOUGH_SEEDS if num_settings * ENOUGH_SEEDS * epochs < search_epochs else FEW_SEEDS


def _fitting_space(
    space: Space | str | Path | None, config: ExperimentConfig, rules: StopRules, problems: Problems
) -> Space:
    """Return the space; add to ``problems`` if it does not fit the run."""
    try:
        asked = space if isinstance(space, Space) else load_space(space, config.method_name)
    except ConfigError as error:
        raise ConfigError(problems.lines + error.problems) from error
    if space is None:
        asked = _fitting_part(asked, config, searched_live_only=rules.scheduler == "pbt")
    try:
        check_space(asked, config, searched_live_only=rules.scheduler == "pbt")
    except ConfigError as error:
        problems.lines += error.problems
    return asked


def _fitting_part(space: Space, config: ExperimentConfig, *, searched_live_only: bool) -> Space:
    """Return a shipped space without what the run's method refuses or cannot change during a run; its name says so."""
    fixed = refused_by_method(space, config)
    if searched_live_only:
        fixed += [each.name for each in space.parameters if each.name not in fixed and why_not_live(each, config)]
    return Space(space.without(set(fixed)).parameters, f"{space.where} without {', '.join(fixed)}") if fixed else space


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
