"""``ebclab sweep``: search settings, confirm the best, or show what would be searched."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ebclab.cli.options import SettingsOptions, TrialOptions, composed, refuse_given, takes, with_named_cluster
from ebclab.config.check import short
from ebclab.config.options import option, seconds_of, values_of
from ebclab.document.document import Table, numeric
from ebclab.document.text import print_blocks, print_facts
from ebclab.errors import UserError
from ebclab.formatting import PROBES, clock, count
from ebclab.interval import POINTS, SHARE
from ebclab.sweeps.request import SweepRequest
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.sweeps.plan import SweepPlan
    from ebclab.sweeps.resources import Limits
    from ebclab.sweeps.results import SweepResult


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SettingsOptions, TrialOptions, SweepRequest):
    """Arguments and options of ``ebclab sweep``; see the help text of each option."""

    objective: str | None = option(
        None,
        "Objective that ranks trials, never on the test set; default: holdout_knn; docs/evaluation.md has all.",
        sets="evaluation.objective",
        panel="Search",
    )
    time: float | None = option(None, "Time limit of the search, such as 8h or 1h30m.", read=seconds_of, panel="Budget")
    name: str | None = option(None, "Name of the sweep; default: METHOD-DATASET.", panel="Results")
    sweeps: str = option(
        "sweeps", "Folder of sweeps, or an address such as s3://bucket/sweeps.", is_place_of_results=True
    )
    resume: bool = option(False, "Continue a sweep; --trials may be raised.")
    warm_start: str | None = option(
        None, "Folder or address of an earlier sweep to learn from.", panel="Search", is_place_of_results=True
    )
    show: bool = option(False, "Only print search space, trials, resources and longest time.", panel="Options")
    price_per_hour: float | None = option(None, "With --show: price of one hour of one trial.", minimum=0)

    def plan(self, *, look: bool = True) -> SweepPlan:
        """Return the plan of the sweep; omitted options have their defaults, or the values of the resumed sweep.

        Args:
            look: Inspect images that are given by location; those of a submitted command may be on another machine.
        """
        from ebclab.config import compose, to_mapping
        from ebclab.config.names import require_folder_name
        from ebclab.sweeps.plan import make_plan

        if self.name is not None:
            require_folder_name(self.name)
        overrides = self.overrides()
        if (saved := self._saved()) is None:
            config, asked = composed(self.method, self.recipe, self.config, overrides, look=look), self
        else:
            config = compose(self.method, config=to_mapping(saved.config), overrides=overrides)
            known = values_of(SweepRequest, saved.request)
            asked = replace(self, **(known | values_of(SweepRequest, self, only_given=True)))
        plan = make_plan(with_named_cluster(config, overrides, self.config or "the sweep's sweep.yaml"), asked)
        if self.interval_epochs is not None and plan.rules.scheduler != "pbt":
            raise UserError(
                f"--interval: only a population exchanges, got {self.interval_epochs} with --scheduler "
                f"{plan.rules.scheduler}; leave it out, or add --scheduler pbt"
            )
        return plan

    def _saved(self) -> SweepPlan | None:
        """Return the plan of the sweep to resume; None if there is none, or if this command specifies it completely."""
        if not self.resume or self.recipe is not None or self.config is not None:
            return None
        from ebclab.sweeps.folder import SweepFolder
        from ebclab.sweeps.sweep import default_name  # imports torch

        name = self.name or default_name(composed(self.method, None, None, self.overrides(), look=False))
        folder = SweepFolder.named(self.sweeps, name)
        folder = folder.of("reader").pull()
        return folder.read_plan() if folder.plan.is_file() else None


@takes(SweepOptions)
def sweep(given: SweepOptions) -> None:
    """Search a method's settings with early stopping, then confirm the best with several seeds.

    Repeating a command continues an unfinished sweep and prints the result of a finished one.

    Examples:

    ebclab sweep simclr --recipe fashion-mnist-small --trials 32 --time 8h

    ebclab sweep simclr --dataset cifar10 --scheduler pbt --trials 8 --show
    """
    plan, limits = given.plan(), given.limits(given.time)
    if given.show:
        if given.warm_start:
            from ebclab.sweeps.sweep import earlier_results

            earlier_results(given.warm_start, plan)  # raises the same errors as the sweep itself
        return print_forecast(plan, limits, given.price_per_hour)
    refuse_given(given, ("price_per_hour",), "is for --show, got {}; leave it out, or add --show")
    from ebclab.sweeps.sweep import sweep as run_sweep

    result = run_sweep(
        plan, limits=limits, sweeps=given.sweeps, name=given.name, resume=given.resume, warm_start=given.warm_start
    )
    print_result(result, plan)


def print_forecast(plan: SweepPlan, limits: Limits, price_per_hour: float | None) -> None:
    """Print the search space, the resources and an upper bound of the time."""
    from ebclab.cluster.switches import set_ray_switches
    from ebclab.config.experiment import methods_of
    from ebclab.sweeps.preflight import epoch_seconds, require_runnable
    from ebclab.sweeps.space.check import describe_space
    from ebclab.training.display import Listener
    from ebclab.training.setup import load_images

    methods = methods_of(plan.config)
    split = load_images(plan.config.data)
    warnings = require_runnable(plan, split, methods)
    set_ray_switches()
    from ebclab.cluster.join import cluster_session
    from ebclab.sweeps.ray_tune.phase import resources_of

    address = plan.config.resources.cluster
    where = "starting Ray on this machine" if address == "local" else f"asking the cluster at {address}"
    say(f"{where}, to see how many trials fit at once", err=True)
    with cluster_session(address, Listener()):
        resources = resources_of(plan, limits)
    space = tuple(describe_space(plan.space, plan.config))
    print_blocks([Table(f"searched ({plan.space.where})", ("setting", "range", "now"), space)])
    say("training a few steps here, to see how long an epoch takes", err=True)
    epoch = epoch_seconds(plan.config, split, methods, threads=resources.threads)
    hours = epoch * plan.longest_epochs(1) / 3600
    cost = f", {price_per_hour * hours:,.2f} at {price_per_hour:g} an hour" if price_per_hour else ""
    facts = {
        "search": f"{count(plan.trials, 'trial')} of at most {count(plan.epochs, 'epoch')}, {plan.search}, "
        f"{plan.rules.scheduler}",
        "confirm": _confirm(plan),
        "objective": plan.config.evaluation.objective,
        "resources": resources.in_words(),
        "one epoch": f"about {epoch:,.1f} s with the present settings, from a few steps measured here",
        "longest time": f"{clock(epoch * plan.longest_epochs(resources.concurrent))}, {hours:,.2f} trial-hours{cost}"
        + "; less with early stopping" * plan.rules.stops_early,
    }
    print_facts(facts)
    for warning in warnings:
        say(f"warning: {warning}")


def print_result(result: SweepResult, plan: SweepPlan) -> None:
    """Print the confirmed settings, the test score of the winner and the location of the sweep."""
    from ebclab.evaluation.objectives import OBJECTIVES, format_of
    from ebclab.storage.object_store import remote_at
    from ebclab.sweeps.folder import BEST

    objective, where = result.objective, result.path
    if result.candidates:
        heads = ("settings of", f"{OBJECTIVES[objective]}, mean (95 %)", "seeds")
        rows = [
            (
                entry.in_words(plan),
                numeric(format_of(objective).interval(entry)),
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
        scores.append(f"{PROBES[name]} {SHARE.number(score.mean)}{gain}")
    times = result.test_readings or 1
    return ", ".join(scores) + (f"; read {times} times" if times > 1 else "")


def _confirm(plan: SweepPlan) -> str:
    if not plan.top:
        return "nothing"
    also = " and of the settings it starts from" if plan.baseline else ""
    apart = ", scored on images that no search saw" if plan.config.data.confirm_rate else ""
    epochs = count(plan.config.training.epochs, "epoch")
    return f"{count(plan.seeds, 'seed')} of the best {plan.top}{also}, {epochs} each{apart}"
