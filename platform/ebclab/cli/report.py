"""``ebclab report``: the page about runs, about sweeps or about a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from ebclab.cli.options import RESULTS
from ebclab.errors import UserError
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.document.document import Document


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
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Write no files; serve the page on this machine and renew it until Ctrl-C."),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(metavar="P", min=1, max=65_535, help="Port of --watch; default: one that the system chooses."),
    ] = None,
) -> None:
    """Write a page about runs, sweeps or a comparison: one HTML file that needs no network, with its numbers beside it.

    Several are compared side by side. While one is running, the page shows what is known; repeat the command to update,
    or let --watch do so.
    """
    from ebclab.inventory.listing import place_named
    from ebclab.reports.report import report as write_page
    from ebclab.storage.kinds import COMPARISON, RUN
    from ebclab.storage.object_store import holds

    folders = [*map(place_named, folders)]
    if watch:
        return _watch(folders, to, price_per_gpu_hour, optuna, port)
    if port is not None:
        raise UserError(f"--port: is for --watch, got {port}; leave it out, or add --watch")
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


def _watch(folders: list[str], to: str | None, price: float | None, optuna: str | None, port: int | None) -> None:
    """Serve the page until Ctrl-C."""
    from ebclab.reports.report import document_of
    from ebclab.reports.watch import LOOK_SECONDS, PageServer, WatchedPage
    from ebclab.storage.kinds import COMPARISON
    from ebclab.storage.object_store import holds

    for option, given in (("--to", to), ("--optuna", optuna)):
        if given is not None:
            raise UserError(f"{option}: --watch writes no files, got {given}; leave out one of them")
    draw = partial(document_of, *folders, price_per_gpu_hour=price)
    if len(folders) == 1 and holds(folders[0], COMPARISON.settings):
        _refuse_for_comparison({"--price-per-gpu-hour": price})
        draw = partial(_comparison_now, folders[0])
    with PageServer(WatchedPage(draw, folders), port or 0) as server:
        say(f"report: {server.address}")
        say(f"it looks for changes every {LOOK_SECONDS} seconds; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _comparison_now(place: str) -> Document:
    from ebclab.comparisons.compare import findings_of
    from ebclab.comparisons.document import comparison_document
    from ebclab.comparisons.plan import ComparisonFolder

    folder = ComparisonFolder.at(place).of("reader")
    return comparison_document(findings_of(folder), folder.read_versions())


def _write_journal(folders: list[str], to: str) -> None:
    from ebclab.reports.optuna_journal import write_journal

    for line in write_journal(folders, Path(to)):
        say(line, err=True)
    say(f"journal: {to}; `optuna-dashboard {to}` opens it")


def _report_comparison(place: str, to: str | None, price_per_gpu_hour: float | None, optuna: str | None) -> None:
    """Write the page of a comparison, which is always in its folder."""
    from ebclab.comparisons.compare import page_of
    from ebclab.comparisons.plan import ComparisonFolder

    _refuse_for_comparison({"--to": to, "--price-per-gpu-hour": price_per_gpu_hour, "--optuna": optuna})
    folder = page_of(ComparisonFolder.at(place)).folder
    say(f"report: {folder.address_of(folder.page)}")
    say(f"beside it: {folder.table.name}, {folder.result.name}")


def _refuse_for_comparison(options: Mapping[str, object]) -> None:
    for option, given in options.items():
        if given is not None:
            raise UserError(f"{option}: of runs and sweeps only, got a comparison; leave it out")
