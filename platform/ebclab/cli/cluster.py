"""``ebclab cluster``: whether a file for ``ray up`` is ready, before it costs anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Check a file for `ray up`.", no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Check a file for `ray up`; cluster/README.md has every command."""


@app.command("check")
def check(file: Annotated[Path, typer.Argument(help="Such as cluster/cluster.yaml.")]) -> None:
    """Say in a sentence each what would stop `ray up`, and what the machines are at most.

    Keys that Ray does not know, values not chosen yet, files that are missing, a dashboard that others could reach.
    Nothing is started and nobody is asked.
    """
    from ebclab.cli.cluster_file import check_cluster_file

    for line in check_cluster_file(file):
        typer.echo(line)
