"""``ebclab sweep``: search settings, confirm the best, or show what would be searched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ebclab.cli import options
from ebclab.cli.options import RESULTS, as_assignments, composed, takes, with_named_cluster
from ebclab.config.options import seconds_of
from ebclab.errors import UserError
from ebclab.sweeps.request import SweepChoices, given_choices

if TYPE_CHECKING:
    from ebclab.sweeps.plan import SweepPlan
    from ebclab.sweeps.resources import Limits


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SweepChoices):
    """Arguments and options of ``ebclab sweep``; see the help text of each option."""

    method: options.Method
    recipe: Annotated[str | None, typer.Option(help="Named settings of every trial.")] = None
    config: Annotated[str | None, typer.Option(help="YAML file of settings of every trial.")] = None
    dataset: options.Dataset = None
    data_root: options.DataRoot = None
    init: Annotated[
        str | None,
        options.init_option("Initial weights of every trial: an export, a finished run, or timm/NAME."),
        RESULTS,
    ] = None
    assignments: Annotated[list[str] | None, options.set_option("Any setting of all trials.")] = None
    objective: Annotated[
        str | None,
        typer.Option(
            help="Objective that ranks trials, never on the test set; default: holdout_knn; docs/evaluation.md has all."
        ),
    ] = None
    limit: Annotated[str | None, typer.Option("--time", help="Time limit of the search, such as 8h or 1h30m.")] = None
    gpus_per_trial: Annotated[float | None, typer.Option(help="GPUs per trial; 0.25 puts four trials on one GPU.")] = (
        None
    )
    concurrent: Annotated[str, typer.Option(metavar="N", help="Number of concurrent trials; auto: as many as fit.")] = (
        "auto"
    )
    name: Annotated[str | None, typer.Option(help="Name of the sweep; default: METHOD-DATASET.")] = None
    sweeps: Annotated[
        str, typer.Option(help="Folder of sweeps, or an address such as s3://bucket/sweeps."), RESULTS
    ] = "sweeps"
    resume: Annotated[bool, options.resume_option("Continue a sweep; --trials may be raised.")] = False
    warm_start: Annotated[
        str | None, typer.Option(help="Folder or address of an earlier sweep to learn from."), RESULTS
    ] = None
    show: Annotated[
        bool, typer.Option("--show", help="Only print search space, trials, resources and longest time.")
    ] = False
    price_per_hour: Annotated[float | None, typer.Option(help="With --show: price of one hour of one trial.")] = None

    def plan(self, *, look: bool = True) -> SweepPlan:
        """Return the plan of the sweep; omitted options have their defaults, or the values of the resumed sweep.

        Args:
            look: Inspect images that are given by location; those of a submitted command may be on another machine.
        """
        from ebclab.config import compose, to_mapping
        from ebclab.config.names import require_folder_name
        from ebclab.sweeps.make_plan import make_plan

        if self.name is not None:
            require_folder_name(self.name)
        named = {
            "data.name": self.dataset,
            "data.root": self.data_root,
            "init.weights": self.init,
            "evaluation.objective": self.objective,
        }
        overrides = as_assignments(named, self.assignments)
        if (saved := self._saved()) is None:
            config, choices = composed(self.method, self.recipe, self.config, overrides, look=look), given_choices(self)
        else:
            config = compose(self.method, config=to_mapping(saved.config), overrides=overrides)
            choices = given_choices(saved.choices) | given_choices(self)
        plan = make_plan(with_named_cluster(config, overrides, self.config or "the sweep's sweep.yaml"), **choices)
        if self.interval_epochs is not None and plan.rules.scheduler != "pbt":
            raise UserError(
                f"--interval: only a population exchanges, got {self.interval_epochs} with --scheduler "
                f"{plan.rules.scheduler}; leave it out, or add --scheduler pbt"
            )
        return plan

    def limits(self) -> Limits:
        """Return the resource limits of the trials and the time limit of the search."""
        from ebclab.sweeps.resources import Limits

        seconds = None if self.limit is None else seconds_of(self.limit)
        return Limits(self.gpus_per_trial, concurrent_of(self.concurrent), seconds)

    def _saved(self) -> SweepPlan | None:
        """Return the plan of the sweep to resume; None if there is none, or if this command specifies it completely."""
        from ebclab.storage.remote import remote_in
        from ebclab.sweeps.folder import SweepFolder

        if not (self.resume and self.name) or self.recipe is not None or self.config is not None:
            return None
        folder = SweepFolder.at(remote_in(self.sweeps, self.name) or Path(self.sweeps) / self.name)
        folder = folder.of("reader").pull()
        return folder.read_plan() if folder.plan.is_file() else None


@takes(SweepOptions)
def sweep(given: SweepOptions) -> None:
    """Search a method's settings with early stopping, then confirm the best with several seeds.

    Repeating a command continues an unfinished sweep and prints the result of a finished one.
    """
    from ebclab.cli.sweep_report import print_forecast, print_result

    plan, limits = given.plan(), given.limits()
    if given.price_per_hour is not None and not 0 <= given.price_per_hour < math.inf:
        raise UserError(f"--price-per-hour: must be a number, not negative, got {given.price_per_hour:g}")
    if given.show:
        if given.warm_start:
            from ebclab.sweeps.warm_start import earlier_results

            earlier_results(given.warm_start, plan)  # raises the same errors as the sweep itself
        return print_forecast(plan, limits, given.price_per_hour)
    from ebclab.sweeps.sweep import sweep as run_sweep

    result = run_sweep(
        plan, limits=limits, sweeps=given.sweeps, name=given.name, resume=given.resume, warm_start=given.warm_start
    )
    print_result(result, plan)


def concurrent_of(text: str) -> int | None:
    """Return a number of concurrent trials; None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdigit() or int(text) == 0:
        raise UserError(f"--concurrent: not a number of trials, got {text!r}; write auto or a number from 1")
    return int(text)
