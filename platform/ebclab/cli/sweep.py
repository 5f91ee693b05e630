"""``ebclab sweep``: search settings, confirm the best, or show what would be searched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebclab.cli.options import SettingsOptions, TrialOptions, as_assignments, composed, takes, with_named_cluster
from ebclab.config.options import option, seconds_of, values_of
from ebclab.errors import UserError
from ebclab.sweeps.request import SweepRequest

if TYPE_CHECKING:
    from ebclab.sweeps.plan import SweepPlan


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SettingsOptions, TrialOptions, SweepRequest):
    """Arguments and options of ``ebclab sweep``; see the help text of each option."""

    objective: str | None = option(
        None,
        "Objective that ranks trials, never on the test set; default: holdout_knn; docs/evaluation.md has all.",
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
        named = {
            "data.name": self.dataset,
            "data.root": self.data_root,
            "init.weights": self.init,
            "evaluation.objective": self.objective,
        }
        overrides = as_assignments(named, self.assignments)
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
        from ebclab.sweeps.folder import SweepFolder

        if not (self.resume and self.name) or self.recipe is not None or self.config is not None:
            return None
        folder = SweepFolder.named(self.sweeps, self.name)
        folder = folder.of("reader").pull()
        return folder.read_plan() if folder.plan.is_file() else None


@takes(SweepOptions)
def sweep(given: SweepOptions) -> None:
    """Search a method's settings with early stopping, then confirm the best with several seeds.

    Repeating a command continues an unfinished sweep and prints the result of a finished one.

    Examples:

    ebclab sweep flatclr --recipe fashion-mnist-small --trials 32 --time 8h

    ebclab sweep simclr --dataset cifar10 --scheduler pbt --trials 8 --show
    """
    from ebclab.cli.sweep_report import print_forecast, print_result

    plan, limits = given.plan(), given.limits(given.time)
    if given.show:
        if given.warm_start:
            from ebclab.sweeps.sweep import earlier_results

            earlier_results(given.warm_start, plan)  # raises the same errors as the sweep itself
        return print_forecast(plan, limits, given.price_per_hour)
    from ebclab.sweeps.sweep import sweep as run_sweep

    result = run_sweep(
        plan, limits=limits, sweeps=given.sweeps, name=given.name, resume=given.resume, warm_start=given.warm_start
    )
    print_result(result, plan)
