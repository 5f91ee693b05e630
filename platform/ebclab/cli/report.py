"""``ebclab report``: the page about one sweep or several."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

import typer

from ebclab.cli.options import RESULTS


def report(
    sweeps: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Sweep folders or addresses, finished or running.", show_default=False),
        RESULTS,
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Page to write; report.html in the folder (several: ./sweeps.html) when left out.",
        ),
        RESULTS,
    ] = None,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option(metavar="P", help="Price of one GPU for an hour, in any currency.")
    ] = None,
) -> None:
    """Write a sweep's report: one HTML file that needs no network, with CSV and JSON beside it.

    Several sweeps stand side by side. Of a running sweep it shows what is known; repeat the command to refresh it.
    """
    from ebclab.reports.output import write_report

    where, _ = write_report(sweeps, to, price_per_gpu_hour)
    page = PurePosixPath(where.partition("?")[0])
    typer.echo(f"report: {where}")
    typer.echo(f"beside it: {page.with_suffix('.csv').name}, {page.with_suffix('.json').name}")
