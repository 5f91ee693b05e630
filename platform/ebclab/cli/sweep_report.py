"""Output of ``ebclab sweep``: a forecast before, and the results after."""

from __future__ import annotations

import os
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebclab.formatting import count, terminal_columns
from ebclab.terminal import console, say

if TYPE_CHECKING:
    from ebclab.sweeps.plan import SweepPlan
    from ebclab.sweeps.resources import Limits
    from ebclab.sweeps.results import ConfirmedSettings, SweepResult

_COPIED = ("next", "sweep", "page")
"""Facts that are commands or paths, which are not wrapped so that they can be copied."""


def print_forecast(plan: SweepPlan, limits: Limits, price_per_hour: float | None) -> None:
    """Print the search space, the resources and an upper bound of the time."""
    from rich.table import Table

    from ebclab.cluster.switches import set_ray_switches
    from ebclab.config.experiment import methods_of
    from ebclab.formatting import clock
    from ebclab.sweeps.forecast import forecast
    from ebclab.sweeps.preflight import require_judgeable, require_trainable
    from ebclab.sweeps.space.check import describe_space
    from ebclab.training.display import SilentDisplay
    from ebclab.training.setup import load_images

    methods = methods_of(plan.config)
    split = load_images(plan.config)
    require_judgeable(plan, split)
    warnings = require_trainable(plan, split, methods)
    set_ray_switches()
    from ebclab.cluster.join import cluster_session
    from ebclab.sweeps.ray_tune.launch import resources_of

    address = plan.config.resources.address or os.environ.get("RAY_ADDRESS") or "local"
    where = "starting Ray on this machine" if address == "local" else f"asking the cluster at {address}"
    say(f"{where}, to see how many trials fit at once", err=True)
    with cluster_session(address, SilentDisplay()):
        resources = resources_of(plan, limits)
    table = Table(title=f"searched ({plan.space.where})", title_justify="left")
    for column in ("setting", "range", "now"):
        table.add_column(column, overflow="fold")
    for row in describe_space(plan.space, plan.config):
        table.add_row(*row)
    console().print(table)
    bound = forecast(plan, resources, split, methods)
    cost = f", {price_per_hour * bound.trial_hours:,.2f} at {price_per_hour:g} an hour" if price_per_hour else ""
    facts = {
        "search": f"{count(plan.trials, 'trial')} of at most {count(plan.epochs, 'epoch')}, {plan.search}, "
        f"{plan.rules.scheduler}",
        "confirm": _confirm(plan),
        "objective": plan.config.evaluation.objective,
        "resources": resources.in_words(),
        "one epoch": f"about {bound.epoch_seconds:,.1f} s with the present settings, from a few steps measured here",
        "longest time": f"{clock(bound.seconds)}, {bound.trial_hours:,.2f} trial-hours{cost}; less with early stopping",
    }
    print_facts(facts)
    for warning in warnings:
        say(f"warning: {warning}")


def print_result(result: SweepResult, plan: SweepPlan) -> None:
    """Print the confirmed settings, the test score of the winner and the location of the sweep."""
    from rich.table import Table

    from ebclab.evaluation.objectives import OBJECTIVES, shown_interval, shown_score
    from ebclab.formatting import clock
    from ebclab.storage.remote import remote_at

    objective, where = result.objective, result.path

    def shown(entry: ConfirmedSettings) -> str:
        mean = shown_score(objective, entry.mean)
        if entry.low is None or entry.high is None:
            return mean
        return f"{mean} ({shown_interval(objective, entry.low, entry.high)})"

    if result.candidates:
        table = Table(title="confirmed with other seeds", title_justify="left")
        table.add_column("settings of")
        table.add_column(f"{OBJECTIVES[objective]}, mean (95 %)", justify="right")
        table.add_column("seeds", justify="right")
        for entry in result.candidates:
            table.add_row(entry.in_words(plan), shown(entry), f"{len(entry.values)}/{entry.seeds_asked}")
        console().print(table)
    winner = result.winner
    settings = ", ".join(f"{key}={_short(value)}" for key, value in winner.settings.items())
    facts = {
        "winner": f"{winner.in_words(plan)}: {settings}",
        "trials": ", ".join(f"{number} {state}" for state, number in result.trials.items()),
        "time": f"{clock(result.seconds)} of trials; early stopping saved about {clock(result.saved.seconds)}",
    }
    if result.test:
        facts["test set"] = _on_test_set(result)
    best = shlex.quote(
        (remote / "best.yaml").address if (remote := remote_at(where)) else str(Path(where) / "best.yaml")
    )
    facts |= {"sweep": where, "next": f"ebclab pretrain {result.method} --config {best}"}
    print_facts(facts)


def _on_test_set(result: SweepResult) -> str:
    """Return the winner's test scores and its gain over the starting settings on the test set, as text."""
    scores = []
    for name, score in (result.test or {}).items():
        gap = (result.test_gain or {}).get(name)
        gain = f" ({100 * gap.mean:+.1f} points over the starting settings, {gap.verdict})" if gap else ""
        scores.append(f"{name} {score.mean:.1%}{gain}")
    times = result.test_readings or 1
    return ", ".join(scores) + (f"; read {times} times" if times > 1 else "")


def _confirm(plan: SweepPlan) -> str:
    if not plan.top:
        return "nothing"
    also = " and of the settings it starts from" if plan.baseline else ""
    apart = ", scored on images that no search saw" if plan.config.data.confirm_rate else ""
    epochs = count(plan.config.training.epochs, "epoch")
    return f"{count(plan.seeds, 'seed')} of the best {plan.top}{also}, {epochs} each{apart}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_facts(facts: dict[str, str]) -> None:
    """Print names and facts in two columns, wrapped at the terminal's width except for commands and paths to copy."""
    width = max(map(len, facts))
    columns = terminal_columns()
    lines = textwrap.TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
    lines.subsequent_indent = " " * (width + 2)
    for key, value in facts.items():
        line = f"{key:>{width}}: {value}"
        say(line if key in _COPIED else lines.fill(line))
