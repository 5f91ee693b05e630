"""``ebclab export``: exports encoders of a run or of a sweep as portable folders."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ebclab.cli.options import RESULTS
from ebclab.errors import UserError
from ebclab.formatting import fitted
from ebclab.terminal import say


def export(
    source: Annotated[
        str,
        typer.Argument(metavar="RUN|SWEEP", help="Folder or address of a run or sweep.", show_default=False),
        RESULTS,
    ],
    to: Annotated[str, typer.Option("--to", help="Folder to create, or an address.", show_default=False), RESULTS],
    top: Annotated[
        int | None,
        typer.Option(help="Number of a sweep's confirmed winners to export; default: 1.", show_default=False),
    ] = None,
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Export the best search trials of a sweep, without confirmation.")
    ] = False,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="safetensors, onnx or torch-export; repeatable. safetensors is always written."),
    ] = None,
    checkpoint: Annotated[
        str, typer.Option(help="Checkpoint of a run: last, or best by the run's objective.")
    ] = "last",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing export.")] = False,
) -> None:
    """Write encoders as safetensors with cards that say how good they are and how to load them."""
    from ebclab.config.addresses import is_address
    from ebclab.export.formats import formats_named
    from ebclab.export.place import landed
    from ebclab.export.run import export_run
    from ebclab.export.sweep import export_sweep, is_sweep

    asked = formats_named(formats or [])
    of_sweep = is_sweep(source)
    _require_fitting(source, of_sweep, top, unconfirmed, checkpoint)
    with landed(to, overwrite, of_sweep=of_sweep) as target:
        if of_sweep:
            best = 1 if top is None else top
            done = export_sweep(source, target, top=best, unconfirmed=unconfirmed, formats=asked, overwrite=overwrite)
            folder, notes = done.folder, done.notes
            shown, card = ", ".join(place.folder for place in done.places) + " ", "each shows how to load it"
        else:
            folder, notes = export_run(source, target, checkpoint_kind=checkpoint, formats=asked, overwrite=overwrite)
            shown, card = "", "it shows how to load the encoder"
    for note in notes:
        say(f"warning: {note}", err=True)
    also = ", leaderboard.csv lists all" if of_sweep else ""
    line = f"exported {shown}to {to if is_address(to) else folder}; README.md in {card}{also}"
    say(fitted(line, sys.stdout))


def _require_fitting(source: str, of_sweep: bool, top: int | None, unconfirmed: bool, checkpoint: str) -> None:
    """Refuse options for sweeps if the source is a run, and vice versa."""
    if of_sweep and checkpoint != "last":
        raise UserError(f"--checkpoint: a sweep ranks last checkpoints, got {checkpoint}; leave it out")
    if not of_sweep and (top is not None or unconfirmed):
        option = "--top" if top is not None else "--unconfirmed"
        raise UserError(f"{option}: is for sweeps, got {source}, which holds no sweep.yaml; leave it out")
