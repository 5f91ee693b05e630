"""Makes the plan of a sweep from the user's options; all mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from ebclab.config import ExperimentConfig, did_you_mean
from ebclab.config.check import Problems, check_section
from ebclab.config.experiment import settings_of
from ebclab.config.options import option_problems
from ebclab.config.yaml_text import from_yaml
from ebclab.errors import ConfigError
from ebclab.evaluation.comparison import ENOUGH_SEEDS
from ebclab.sweeps.plan import Population, SweepPlan
from ebclab.sweeps.policies.stopping import StopRules
from ebclab.sweeps.request import Scheduler, Search, SweepChoices
from ebclab.sweeps.space.check import check_space, refused_by_method, why_not_live
from ebclab.sweeps.space.space import Space, load_space

TRIALS = 16
FEW_SEEDS = 3


def make_plan(config: ExperimentConfig, **choices: Any) -> SweepPlan:
    """Return the plan of a sweep.

    Args:
        config: Settings of every trial, except the searched ones; ``training.epochs`` is the full budget.
        choices: Fields of ``SweepChoices``: trials, epochs, space and so on.

    Raises:
        ConfigError: With every problem found.
    """
    asked, problems = SweepChoices(**choices), Problems()
    problems.lines += option_problems(asked)
    scheduler, trials = asked.scheduler or "asha", asked.trials
    stop_rules = _rules(scheduler, asked.rules, problems)
    search = asked.search or ("random" if scheduler == "pbt" else "tpe")
    fitting = _fitting_space(asked.space, config, stop_rules, problems)
    if search == "grid" and trials is not None and trials != fitting.grid_size:
        problems.add(
            "--trials", f"the grid has {fitting.grid_size} points, got {trials}; leave --trials out or thin it"
        )
    count = fitting.grid_size if search == "grid" else TRIALS if trials is None else trials
    budget = config.training.epochs if asked.epochs is None else asked.epochs
    best = min(3, count) if asked.top is None else asked.top
    interval = max(1, budget // 5) if asked.interval_epochs is None else asked.interval_epochs
    baseline = asked.baseline is not False
    if asked.confirm_split and config.data.confirm_rate == 0:
        config = replace(config, data=replace(config.data, confirm_rate=config.data.holdout_rate))
    usual_seeds = _seeds(best + baseline, config.training.epochs, count * budget)
    plan = SweepPlan(
        config=config,
        space=fitting,
        search=cast(Search, search),
        rules=stop_rules,
        population=Population(interval),
        trials=count,
        epochs=budget,
        top=best,
        seeds=usual_seeds if asked.seeds is None else asked.seeds,
        baseline=baseline,
    )
    if lines := [*dict.fromkeys(problems.lines + plan.problems())]:
        raise ConfigError(lines)
    return plan


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
    """Return a shipped space without what the run's method refuses or cannot change in mid-run; its name says so."""
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
