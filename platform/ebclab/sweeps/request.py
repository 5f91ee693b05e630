"""What a sweep searches and confirms: options of ``ebclab sweep``, from which ``make_plan`` makes a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ebclab.config.options import OPEN, option
from ebclab.sweeps.space.space import Space

Search = Literal["tpe", "random", "grid"]
"""How the trials of a search are proposed."""
Scheduler = Literal["asha", "median", "pbt", "none"]


@dataclass(frozen=True, kw_only=True)
class SweepChoices:
    """What a request asks for and a plan holds, also in sweep.yaml; in a request, what is omitted is None."""

    search: Search = option(OPEN, "tpe, random or grid; default: tpe, with pbt random.", panel="Search")
    trials: int = option(OPEN, "Number of search trials; default: 16, or the whole grid.", panel="Budget", minimum=1)
    epochs: int = option(
        OPEN, "Most epochs of a search trial; default: training.epochs, which confirming runs train.", minimum=1
    )
    top: int = option(
        OPEN, "Number of best settings to confirm at full budget; default: 3; 0: none.", panel="Confirmation", minimum=0
    )
    seeds: int = option(
        OPEN, "Seeds per confirmed setting; default: 5 if that is fewer epochs than the search may train, else 3."
    )
    baseline: bool = option(
        OPEN, "Also run the starting settings with these seeds; default: yes.", flag="--baseline/--no-baseline"
    )


@dataclass(frozen=True, kw_only=True)
class SweepRequest(SweepChoices):
    """A sweep as a user asks for it; None stands for the default, or for the value of the sweep that is resumed."""

    space: Space | str | Path | None = option(
        None,
        "YAML file of the search space, or examples/NAME; default: the one shipped with the method.",
        read=str,
        panel="Search",
    )
    scheduler: str | None = option(None, "asha (default), median, pbt or none.", choices=get_args(Scheduler))
    interval_epochs: int | None = option(None, "With pbt: epochs between exchanges.", flag="--interval", minimum=1)
    rules: tuple[str, ...] = option((), "Any stopping rule, e.g. plateau_epochs=5.", flag="--rule", metavar="KEY=VALUE")
    confirm_split: bool = option(
        False,
        "Score them on images unseen by the search: data.confirm_rate, by default data.holdout_rate.",
        panel="Confirmation",
    )
