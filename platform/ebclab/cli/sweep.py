"""``ebclab sweep``: search settings, confirm the best, or show what would be searched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebclab.cli import sweep_options as options
from ebclab.cli.settings import as_assignments, composed
from ebclab.errors import UserError

if TYPE_CHECKING:
    from ebclab.sweeps.folder import SweepFolder
    from ebclab.sweeps.limits import Limits
    from ebclab.sweeps.plan import SweepPlan


_SHORT = {
    "dataset": "data.name",
    "data_root": "data.root",
    "objective": "evaluation.objective",
    "init": "init.weights",
}
"""Options that are settings, by name."""

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def sweep(
    method: options.Method,
    space: options.Space = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    dataset: options.Dataset = None,
    data_root: options.DataRoot = None,
    init: options.Init = None,
    assignments: options.Assignments = None,
    objective: options.Objective = None,
    trials: options.Trials = None,
    epochs: options.Epochs = None,
    limit: options.Limit = None,
    scheduler: options.Scheduler = None,
    search: options.Search = None,
    interval: options.Interval = None,
    rules: options.Rules = None,
    gpus_per_trial: options.GpusPerTrial = None,
    concurrent: options.Concurrent = "auto",
    top: options.Top = None,
    seeds: options.Seeds = None,
    baseline: options.Baseline = None,
    name: options.Name = None,
    sweeps: options.Sweeps = "sweeps",
    resume: options.Resume = False,
    warm_start: options.WarmStart = None,
    show: options.Show = False,
    price_per_hour: options.PricePerHour = None,
) -> None:
    """Search a method's settings with early stopping, then confirm the best with several seeds.

    Repeating a command continues an unfinished sweep and prints the result of a finished one.
    """
    given = {"dataset": dataset, "data_root": data_root, "objective": objective, "init": init}
    layers = (method, recipe, config, as_assignments(given, _SHORT, assignments or []))
    budgets = _given(trials=trials, epochs=epochs, top=top, seeds=seeds, baseline=baseline, interval_epochs=interval)
    choices = _given(space=_local(space), search=search, scheduler=scheduler, rules=rules)
    own = resume and name and recipe is None and config is None
    plan = _plan(*layers, budgets | choices, _begun(sweeps, name) if own and name else None)
    limits = _limits(gpus_per_trial, concurrent, limit)
    if show:
        return _show(plan, limits, price_per_hour)
    _run(plan, limits, sweeps=sweeps, name=name, resume=resume, warm_start=warm_start)


def _given(**asked: Any) -> dict[str, Any]:
    """Return what was asked for, without what was left out."""
    return {key: value for key, value in asked.items() if value is not None}


def _local(file: str | None) -> Path | None:
    """Return a path on this disk of a file that the user named by path or by address."""
    from ebclab.storage.object_store import fetched

    return None if file is None else fetched(file)


def _limits(gpus_per_trial: float | None, concurrent: str, limit: str | None) -> Limits:
    from ebclab.sweeps.limits import Limits

    return Limits(gpus_per_trial, _concurrent(concurrent), None if limit is None else seconds_of(limit))


def _show(plan: SweepPlan, limits: Limits, price_per_hour: float | None) -> None:
    from ebclab.cli.sweep_report import print_forecast

    print_forecast(plan, limits, price_per_hour)


def _run(plan: SweepPlan, limits: Limits, **where: Any) -> None:
    from ebclab.cli.sweep_report import print_result
    from ebclab.sweeps.sweep import sweep as run_sweep

    print_result(run_sweep(plan, limits=limits, **where), plan)


def _begun(sweeps: str, name: str) -> SweepFolder:
    from ebclab.storage.remote import home_in
    from ebclab.sweeps.folder import SweepFolder

    return SweepFolder.at(home_in(sweeps, name) or Path(sweeps) / name).of("reader").pull()


def _plan(
    method: str,
    recipe: str | None,
    config: str | None,
    overrides: list[str],
    given: dict[str, Any],
    saved: SweepFolder | None,
) -> SweepPlan:
    """Return the plan of this command; what it leaves out has its default, or that of the ``saved`` sweep."""
    from dataclasses import asdict

    from ebclab.config import compose, to_mapping
    from ebclab.sweeps.make_plan import make_plan

    if saved is None or not saved.plan.is_file():
        return make_plan(composed(method, recipe, config, overrides), **given)
    before = saved.read_plan()
    rules = asdict(before.rules)
    kept = {
        "space": before.space,
        "search": before.search,
        "scheduler": rules.pop("scheduler"),
        "rules": [f"{key}={value}" for key, value in rules.items()],
        "interval_epochs": before.population.interval_epochs,
        **{key: getattr(before, key) for key in ("trials", "epochs", "top", "seeds", "baseline")},
    }
    return make_plan(compose(method, config=to_mapping(before.config), overrides=overrides), **(kept | given))


def seconds_of(text: str) -> float:
    """Return a duration such as ``8h``, ``1h30m`` or ``90s`` in seconds.

    Raises:
        UserError: It is none.
    """
    parts = re.fullmatch(r"((?:\d+(?:\.\d+)?[dhms])+)", text.strip())
    seconds = sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?)([dhms])", text)) if parts else 0
    if seconds <= 0:
        raise UserError(f"--time: not a duration, got {text!r}; write 8h, 45m or 1h30m")
    return seconds


def _concurrent(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdigit() or int(text) == 0:
        raise UserError(f"--concurrent: not a number of trials, got {text!r}; write auto or a number from 1")
    return int(text)


def plan_of(given: dict[str, Any]) -> SweepPlan:
    """Return the plan of a new sweep from this command's options, all of which are read.

    Args:
        given: Value of each option by name, as the command line's parser has them.
    """
    asked = {
        key: given[key] for key in ("trials", "epochs", "top", "seeds", "baseline", "search", "scheduler", "rules")
    }
    _limits(given["gpus_per_trial"], given["concurrent"], given["limit"])
    choices = _given(**asked, space=_local(given["space"]), interval_epochs=given["interval"])
    return _plan(
        given["method"],
        given["recipe"],
        given["config"],
        as_assignments(given, _SHORT, list(given["assignments"] or [])),
        choices,
        None,
    )
