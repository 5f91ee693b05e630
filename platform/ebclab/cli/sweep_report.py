"""Output of ``ebclab sweep``: a forecast before, and the results after."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ebclab.config.check import short
from ebclab.document.document import Table, numeric
from ebclab.document.terminal import print_blocks, print_facts
from ebclab.formatting import count
from ebclab.interval import POINTS, SHARE
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.sweeps.plan import SweepPlan
    from ebclab.sweeps.resources import Limits
    from ebclab.sweeps.results import SweepResult


def print_forecast(plan: SweepPlan, limits: Limits, price_per_hour: float | None) -> None:
    """Print the search space, the resources and an upper bound of the time."""
    from ebclab.cluster.switches import set_ray_switches
    from ebclab.config.experiment import methods_of
    from ebclab.formatting import clock
    from ebclab.sweeps.forecast import epoch_seconds
    from ebclab.sweeps.preflight import require_judgeable, require_trainable
    from ebclab.sweeps.space.check import describe_space
    from ebclab.training.listener import Listener
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
    with cluster_session(address, Listener()):
        resources = resources_of(plan, limits)
    space = tuple(describe_space(plan.space, plan.config))
    print_blocks([Table(f"searched ({plan.space.where})", ("setting", "range", "now"), space)])
    epoch = epoch_seconds(plan.config, split, methods, threads=resources.threads)
    hours = epoch * plan.most_epochs / 3600
    cost = f", {price_per_hour * hours:,.2f} at {price_per_hour:g} an hour" if price_per_hour else ""
    facts = {
        "search": f"{count(plan.trials, 'trial')} of at most {count(plan.epochs, 'epoch')}, {plan.search}, "
        f"{plan.rules.scheduler}",
        "confirm": _confirm(plan),
        "objective": plan.config.evaluation.objective,
        "resources": resources.in_words(),
        "one epoch": f"about {epoch:,.1f} s with the present settings, from a few steps measured here",
        "longest time": f"{clock(epoch * plan.most_epochs / resources.concurrent)}, {hours:,.2f} trial-hours{cost}; "
        "less with early stopping",
    }
    print_facts(facts)
    for warning in warnings:
        say(f"warning: {warning}")


def print_result(result: SweepResult, plan: SweepPlan) -> None:
    """Print the confirmed settings, the test score of the winner and the location of the sweep."""
    from ebclab.evaluation.objectives import OBJECTIVES, format_of
    from ebclab.formatting import clock
    from ebclab.storage.remote import remote_at
    from ebclab.sweeps.folder import BEST

    objective, where = result.objective, result.path
    if result.candidates:
        heads = ("settings of", f"{OBJECTIVES[objective]}, mean (95 %)", "seeds")
        rows = [
            (
                entry.in_words(plan),
                numeric(format_of(objective).interval(entry.interval)),
                numeric(f"{len(entry.values)}/{entry.seeds_asked}"),
            )
            for entry in result.candidates
        ]
        print_blocks([Table("confirmed with other seeds", heads, tuple(rows))])
    winner = result.winner
    settings = ", ".join(f"{key}={short(value)}" for key, value in winner.settings.items())
    facts = {
        "winner": f"{winner.in_words(plan)}: {settings}",
        "trials": ", ".join(f"{number} {state}" for state, number in result.trials.items()),
        "time": f"{clock(result.seconds)} of trials; early stopping saved about {clock(result.saved.seconds)}",
    }
    if result.test:
        facts["test set"] = _on_test_set(result)
    best = shlex.quote((remote / BEST).address if (remote := remote_at(where)) else str(Path(where) / BEST))
    facts |= {"sweep": where, "next": f"ebclab pretrain {result.method} --config {best}"}
    print_facts(facts)


def _on_test_set(result: SweepResult) -> str:
    """Return the winner's test scores and its gain over the starting settings on the test set, as text."""
    scores = []
    for name, score in (result.test or {}).items():
        gap = (result.test_gain or {}).get(name)
        gain = f" ({POINTS.number(gap.mean)} over the starting settings, {gap.verdict})" if gap else ""
        scores.append(f"{name} {SHARE.number(score.mean)}{gain}")
    times = result.test_readings or 1
    return ", ".join(scores) + (f"; read {times} times" if times > 1 else "")


def _confirm(plan: SweepPlan) -> str:
    if not plan.top:
        return "nothing"
    also = " and of the settings it starts from" if plan.baseline else ""
    apart = ", scored on images that no search saw" if plan.config.data.confirm_rate else ""
    epochs = count(plan.config.training.epochs, "epoch")
    return f"{count(plan.seeds, 'seed')} of the best {plan.top}{also}, {epochs} each{apart}"
