"""What a sweep searches and confirms: options of ``ebclab sweep`` that are also keywords of ``make_plan``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from ebclab.config.options import option
from ebclab.sweeps.space.space import Space

Search = Literal["tpe", "random", "grid"]
"""How the trials of a search are proposed."""
Scheduler = Literal["asha", "median", "pbt", "none"]


def _file(text: str) -> Path:
    from ebclab.storage.object_store import fetched  # numpy takes a while to import

    return fetched(text)


@dataclass(frozen=True, kw_only=True)
class SweepChoices:
    """Choices of a sweep; None stands for the default, or for the value of the sweep that is resumed."""

    space: Space | str | Path | None = option(
        None, "YAML file of the search space; default: the one shipped with the method.", read=_file
    )
    trials: int | None = option(None, "Number of search trials; default: 16, or the whole grid.", minimum=1)
    epochs: int | None = option(
        None, "Most epochs of a search trial; default: training.epochs, which confirming runs train.", minimum=1
    )
    scheduler: str | None = option(None, "asha (default), median, pbt or none.", choices=get_args(Scheduler))
    search: str | None = option(None, "tpe, random or grid; default: tpe, with pbt random.", choices=get_args(Search))
    interval_epochs: int | None = option(None, "With pbt: epochs between exchanges.", flag="--interval", minimum=1)
    rules: tuple[str, ...] = option((), "Any stopping rule, e.g. plateau_epochs=5.", flag="--rule", metavar="KEY=VALUE")
    top: int | None = option(None, "Number of best settings to confirm at full budget; default: 3; 0: none.", minimum=0)
    seeds: int | None = option(
        None,
        "Seeds per confirmed setting; default: 5 if that is fewer epochs than the search may train, else 3.",
    )
    baseline: bool | None = option(
        None, "Also run the starting settings with these seeds; default: yes.", flag="--baseline/--no-baseline"
    )
    confirm_split: bool = option(
        False, "Score them on images unseen by the search: data.confirm_rate, by default data.holdout_rate."
    )


def given_choices(choices: SweepChoices) -> dict[str, Any]:
    """Return the choices that are made, as keywords of ``make_plan``."""
    asked = {each.name: getattr(choices, each.name) for each in fields(SweepChoices)}
    return {name: value for name, value in asked.items() if value not in (None, ())}
