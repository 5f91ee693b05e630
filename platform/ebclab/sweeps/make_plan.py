"""Makes the plan of a sweep from the user's options; all mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from ebclab.config import ExperimentConfig, did_you_mean
from ebclab.config.check import Problems, check_section
from ebclab.config.experiment import settings_of
from ebclab.config.yaml_text import from_yaml
from ebclab.errors import ConfigError
from ebclab.evaluation.comparison import ENOUGH_SEEDS
from ebclab.sweeps.plan import Population, SweepPlan
from ebclab.sweeps.policies.stopping import StopRules
from ebclab.sweeps.space.check import check_space, refused_by_method, why_not_live
from ebclab.sweeps.space.space import Space, load_space
from ebclab.sweeps.trial import Search

TRIALS = 16
FEW_SEEDS = 3
SEARCHES: tuple[str, ...] = get_args(Search)


def make_plan(
    config: ExperimentConfig,
    *,
    space: Space | str | Path | None = None,
    search: str | None = None,
    scheduler: str = "asha",
    trials: int | None = None,
    epochs: int | None = None,
    top: int | None = None,
    seeds: int | None = None,
    baseline: bool = True,
    confirm_split: bool = False,
    interval_epochs: int | None = None,
    rules: Iterable[str] = (),
) -> SweepPlan:
    """Return the plan of a sweep.

    Args:
        config: Settings of every trial, except the searched ones; ``training.epochs`` is the full budget.
        space: The search space: a space, a path, or None for the method's shipped space.
        search: tpe, random or grid; None means tpe, or random under population based training.
        scheduler: asha, median, pbt or none.
        trials: Number of trials of the search; None means 16, or all points of a grid.
        epochs: Budget of a trial of the search; None means the full budget.
        top: How many of the best settings are confirmed; None means 3, or all when there are fewer trials.
        seeds: Number of seeds for each of them; None means 5 where these runs together train fewer epochs than the
            search does at most, else 3.
        baseline: Also confirm the settings that the search starts from.
        confirm_split: Keep images for the confirming runs that the search never sees: the share ``data.confirm_rate``,
            or the same share as ``data.holdout_rate`` if that is 0.
        interval_epochs: Epochs between exchanges of a population; None means a fifth of the budget.
        rules: Stopping rules that differ from the defaults, each ``KEY=VALUE``.

    Raises:
        ConfigError: With every problem found.
    """
    problems = Problems()
    stop_rules = _rules(scheduler, rules, problems)
    search = search or ("random" if scheduler == "pbt" else "tpe")
    if search not in SEARCHES:
        problems.add("--search", f"no such search, got {search}; {did_you_mean(search, SEARCHES)}")
    fitting = _fitting_space(space, config, stop_rules, problems)
    if search == "grid" and trials is not None and trials != fitting.grid_size:
        problems.add(
            "--trials", f"the grid has {fitting.grid_size} points, got {trials}; leave --trials out or thin it"
        )
    count = fitting.grid_size if search == "grid" else TRIALS if trials is None else trials
    budget = config.training.epochs if epochs is None else epochs
    best = min(3, count) if top is None else top
    if confirm_split and config.data.confirm_rate == 0:
        config = replace(config, data=replace(config.data, confirm_rate=config.data.holdout_rate))
    plan = SweepPlan(
        config=config,
        space=fitting,
        search=cast(Search, search),
        rules=stop_rules,
        population=Population(max(1, budget // 5) if interval_epochs is None else interval_epochs),
        trials=count,
        epochs=budget,
        top=best,
        seeds=_seeds(best + baseline, config.training.epochs, count * budget) if seeds is None else seeds,
        baseline=baseline,
    )
    lines = problems.lines + plan.problems()
    if lines:
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
    schedulers = ("asha", "median", "pbt", "none")
    given: dict[str, Any] = {}
    if scheduler in schedulers:
        given["scheduler"] = scheduler
    else:
        problems.add("--scheduler", f"no such scheduler, got {scheduler}; {did_you_mean(scheduler, schedulers)}")
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
