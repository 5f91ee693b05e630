"""``ebclab report``: the page about runs or about sweeps."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

import typer

from ebclab.cli.options import RESULTS
from ebclab.terminal import say


def report(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...", help="Folders or addresses of runs or of sweeps, finished or not.", show_default=False
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
) -> None:
    """Write a page about runs or about sweeps: one HTML file that needs no network, with CSV and JSON beside it.

    Several are compared side by side. While one is running, the page shows what is known; repeat the command to update.
    """
    from ebclab.reports.report import report as write_page

    where = write_page(*folders, to=to, price_per_gpu_hour=price_per_gpu_hour)
    page = PurePosixPath(where.partition("?")[0])
    say(f"report: {where}")
    say(f"beside it: {page.with_suffix('.csv').name}, {page.with_suffix('.json').name}")
