"""``ebclab sweep``: search settings, confirm the best, or show what would be searched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebclab.cli.settings import as_assignments, composed
from ebclab.errors import UserError

if TYPE_CHECKING:
    from ebclab.sweeps.folder import SweepFolder
    from ebclab.sweeps.plan import SweepPlan
    from ebclab.sweeps.ray_tune.launch import Limits


_SHORT = {
    "dataset": "data.name",
    "data_root": "data.root",
    "objective": "evaluation.objective",
    "init": "init.weights",
}
"""Options that are settings, by name."""

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}

Method = Annotated[str, typer.Argument(help="Method; `ebclab show --methods` lists them.", show_default=False)]
Space = Annotated[
    str | None, typer.Option(help="YAML file of what is searched; the method's shipped one when left out.")
]
Recipe = Annotated[str | None, typer.Option(help="Named settings of every trial.")]
Config = Annotated[str | None, typer.Option(help="YAML file of settings of every trial.")]
Dataset = Annotated[str | None, typer.Option(help="Same as --set data.name=...")]
DataRoot = Annotated[str | None, typer.Option(help="Folder that holds datasets.")]
Init = Annotated[str | None, typer.Option(metavar="DIR", help="Weights that every trial starts from, or timm/NAME.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting of every trial.")
]
Objective = Annotated[
    str | None,
    typer.Option(help="holdout_knn, holdout_linear, effective_rank or alignment_uniformity; never the test set."),
]
Trials = Annotated[int | None, typer.Option(help="Trials of the search; 16, or the whole grid.")]
Epochs = Annotated[int | None, typer.Option(help="Epochs of a searching trial at most; training.epochs when left out.")]
Limit = Annotated[str | None, typer.Option("--time", help="Time for the search, such as 8h or 1h30m.")]
Scheduler = Annotated[str | None, typer.Option(help="asha (when left out), median, pbt or none.")]
Search = Annotated[str | None, typer.Option(help="tpe, random or grid; tpe, or random with pbt.")]
Interval = Annotated[int | None, typer.Option(help="pbt: epochs from one exchange to the next.")]
Rules = Annotated[
    list[str] | None, typer.Option("--rule", metavar="KEY=VALUE", help="Any stopping rule, e.g. plateau_epochs=5.")
]
GpusPerTrial = Annotated[float | None, typer.Option(help="GPUs of a trial; .25 puts four on one.")]
Concurrent = Annotated[str, typer.Option(metavar="N", help="Trials at once; auto: as many as fit.")]
Top = Annotated[int | None, typer.Option(help="Best settings to run again at full budget; 3; 0: none.")]
Seeds = Annotated[int | None, typer.Option(help="Seeds that each of them is run with; 3.")]
Baseline = Annotated[
    bool | None,
    typer.Option("--baseline/--no-baseline", help="Run the settings it starts from with these seeds too; yes."),
]
Name = Annotated[str | None, typer.Option(help="Name of the sweep; METHOD-DATASET when left out.")]
Sweeps = Annotated[str, typer.Option(help="Folder that holds sweeps, or an address: s3://bucket/sweeps.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a sweep; --trials may have grown.")]
WarmStart = Annotated[str | None, typer.Option(help="An earlier sweep to learn from: its folder or address.")]
Show = Annotated[bool, typer.Option("--show", help="Print space, trials, resources and longest time only.")]
PricePerHour = Annotated[float | None, typer.Option(help="--show: price of an hour of one trial.")]


def sweep(
    method: Method,
    space: Space = None,
    recipe: Recipe = None,
    config: Config = None,
    dataset: Dataset = None,
    data_root: DataRoot = None,
    init: Init = None,
    assignments: Assignments = None,
    objective: Objective = None,
    trials: Trials = None,
    epochs: Epochs = None,
    limit: Limit = None,
    scheduler: Scheduler = None,
    search: Search = None,
    interval: Interval = None,
    rules: Rules = None,
    gpus_per_trial: GpusPerTrial = None,
    concurrent: Concurrent = "auto",
    top: Top = None,
    seeds: Seeds = None,
    baseline: Baseline = None,
    name: Name = None,
    sweeps: Sweeps = "sweeps",
    resume: Resume = False,
    warm_start: WarmStart = None,
    show: Show = False,
    price_per_hour: PricePerHour = None,
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
    from ebclab.sweeps.ray_tune.launch import Limits

    return Limits(gpus_per_trial, _concurrent(concurrent), None if limit is None else seconds_of(limit))


def _show(plan: SweepPlan, limits: Limits, price_per_hour: float | None) -> None:
    from ebclab.cli.sweep_report import print_forecast

    print_forecast(plan, limits, price_per_hour)


def _run(plan: SweepPlan, limits: Limits, **where: Any) -> None:
    from ebclab.cli.sweep_report import print_result
    from ebclab.sweeps.sweep import sweep as run_sweep

    print_result(run_sweep(plan, limits=limits, **where), plan)


def _begun(sweeps: str, name: str) -> SweepFolder:
    from ebclab.storage.remote import remote_in
    from ebclab.sweeps.folder import SweepFolder

    return SweepFolder.at(remote_in(sweeps, name) or Path(sweeps) / name).of("reader").pull()


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
