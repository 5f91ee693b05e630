"""``ebclab export``: encoders of a run or of a sweep as folders that open elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebclab.errors import UserError


def export(
    source: Annotated[Path, typer.Argument(metavar="RUN|SWEEP", help="Run or sweep folder.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="Folder to make.", show_default=False)],
    top: Annotated[
        int | None, typer.Option(help="How many of a sweep's confirmed winners; 1 if not given.", show_default=False)
    ] = None,
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Of a sweep: the best trials of its search as they are.")
    ] = False,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="safetensors, onnx or torch-export; may be repeated. Weights are always there."),
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="Of a run: last, or best by its objective.")] = "last",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
) -> None:
    """Write encoders as safetensors with cards that say how good they are and how to load them."""
    from ebclab.export.formats import formats_named
    from ebclab.export.run import export_run
    from ebclab.export.sweep import export_sweep, is_sweep

    asked = formats_named(formats or [])
    if is_sweep(source):
        if checkpoint != "last":
            raise UserError(f"--checkpoint: a sweep ranks last checkpoints, got {checkpoint}; leave it out")
        done = export_sweep(
            source, to, top=1 if top is None else top, unconfirmed=unconfirmed, formats=asked, overwrite=overwrite
        )
        folder, notes = done.folder, done.notes
        shown = ", ".join(place.folder for place in done.places)
        last = f"exported {shown} to {folder}; README.md in each shows how to load it, leaderboard.csv lists all"
    else:
        if top is not None or unconfirmed:
            option = "--top" if top is not None else "--unconfirmed"
            raise UserError(f"{option}: is for sweeps, got {source}, which holds no sweep.yaml; leave it out")
        folder, notes = export_run(source, to, checkpoint_kind=checkpoint, formats=asked, overwrite=overwrite)
        last = f"exported to {folder}; README.md in it shows how to load the encoder"
    for note in notes:
        typer.echo(f"warning: {note}", err=True)
    typer.echo(last)
