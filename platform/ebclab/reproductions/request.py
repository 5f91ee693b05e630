"""The options of ``ebclab reproduce``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ebclab.config.options import DATA_ROOT, given_twice, option, option_problems

Scale = Literal["smoke", "quick", "small", "paper"]

SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class ReproduceRequest:
    """Which study is run, and how."""

    study: str | None = option(
        None, "Paper and table, such as ebclr/table1, or a YAML file; --list shows all.", is_argument=True
    )
    scale: Scale = option(
        "smoke",
        "smoke: checks that the commands work; quick: minutes on two cores, mostly under ten; small: hours; "
        "paper: the paper's settings, or those of your file.",
        panel="Runs",
    )
    rows: tuple[str, ...] = option((), "Row to run; repeatable; default: all.", metavar="ROW", panel="Runs")
    datasets: tuple[str, ...] = option(
        (), "Only what needs no images but these; repeatable.", metavar="DATASET", panel="Runs"
    )
    seeds: int | None = option(
        None,
        "Number of seeds (0, 1, ...) per kind of run; default: the study's, at scale paper the paper's.",
        minimum=1,
        below=1_000,
        panel="Runs",
    )
    at_once: int = option(
        1, "Number of runs that train at once, in a process each; they share a GPU.", minimum=1, panel="Runs"
    )
    data_root: str | None = option(None, DATA_ROOT, sets="data.root", panel="Images")
    assignments: tuple[str, ...] = option(
        (), "Any setting of all runs; noted on the page.", flag="--set", metavar="KEY=VALUE", panel="Runs"
    )
    images: tuple[str, ...] = option(
        (), "Images that you have to get yourself, e.g. imagenet=/data/imagenet.", metavar="NAME=PATH", panel="Images"
    )
    to: str | None = option(
        None,
        "Folder or address to write; default: reproductions/PAPER-TABLE-SCALE.",
        metavar="DIR",
        panel="Results",
        is_place_of_results=True,
    )

    @property
    def places(self) -> dict[str, str]:
        return {name: path for name, _, path in (each.partition("=") for each in self.images)}

    def problems(self) -> list[str]:
        """Return what is wrong, one line each."""
        wrong = [each for each in self.images if not all(each.partition("="))]
        twice = given_twice(self, self.assignments, {})
        return [*option_problems(self), *twice, *(f"--images: must be NAME=PATH, got {each!r}" for each in wrong)]
