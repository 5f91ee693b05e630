"""``ebclab report``: the page about runs, about sweeps or about a comparison."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from ebclab.cli.options import RESULTS
from ebclab.errors import UserError
from ebclab.terminal import say


def report(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...",
            help="Names, folders or addresses of runs or of sweeps, or of one comparison, finished or not.",
            show_default=False,
        ),
        RESULTS,
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Page to write; default: report.html in the folder (several folders: ./runs.html or ./sweeps.html).",
        ),
        RESULTS,
    ] = None,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option(metavar="P", help="Price of one GPU-hour, in any currency.")
    ] = None,
    optuna: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also write the trials of sweeps as a journal for optuna-dashboard."),
    ] = None,
) -> None:
    """Write a page about runs, sweeps or a comparison: one HTML file that needs no network, with its numbers beside it.

    Several are compared side by side. While one is running, the page shows what is known; repeat the command to update.
    """
    from ebclab.inventory.listing import place_named
    from ebclab.reports.report import report as write_page
    from ebclab.storage.kinds import COMPARISON, RUN
    from ebclab.storage.object_store import holds

    folders = [*map(place_named, folders)]
    if len(folders) == 1 and holds(folders[0], COMPARISON.settings):
        return _report_comparison(folders[0], to, price_per_gpu_hour, optuna)
    if optuna is not None and any(holds(each, RUN.settings) for each in folders):
        raise UserError("--optuna: of sweeps only, got runs; leave it out")
    where = write_page(*folders, to=to, price_per_gpu_hour=price_per_gpu_hour)
    page = PurePosixPath(where.partition("?")[0])
    say(f"report: {where}")
    say(f"beside it: {page.with_suffix('.csv').name}, {page.with_suffix('.json').name}")
    if optuna is not None:
        _write_journal(folders, optuna)


def _write_journal(folders: list[str], to: str) -> None:
    from ebclab.reports.optuna_journal import write_journal

    for line in write_journal(folders, Path(to)):
        say(line, err=True)
    say(f"journal: {to}; `optuna-dashboard {to}` opens it")


def _report_comparison(place: str, to: str | None, price_per_gpu_hour: float | None, optuna: str | None) -> None:
    """Write the page of a comparison, which is always in its folder."""
    from ebclab.comparisons.compare import page_of
    from ebclab.comparisons.plan import ComparisonFolder

    for option, given in (("--to", to), ("--price-per-gpu-hour", price_per_gpu_hour), ("--optuna", optuna)):
        if given is not None:
            raise UserError(f"{option}: of runs and sweeps only, got a comparison; leave it out")
    folder = page_of(ComparisonFolder.at(place)).folder
    say(f"report: {folder.address_of(folder.page)}")
    say(f"beside it: {folder.table.name}, {folder.result.name}")
