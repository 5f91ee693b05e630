"""``ebclab export``: exports encoders of a run or of a sweep as portable folders."""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass

from ebclab.cli.options import takes
from ebclab.config.options import option
from ebclab.errors import UserError
from ebclab.formatting import fitted
from ebclab.terminal import say


@dataclass(frozen=True)
class ExportOptions:
    """Arguments and options of ``ebclab export``; see the help text of each option."""

    source: str = option(
        MISSING,
        "Name, folder or address of a run or sweep.",
        metavar="RUN|SWEEP",
        is_argument=True,
        is_place_of_results=True,
    )
    to: str = option(MISSING, "Folder to create, or an address.", is_place_of_results=True)
    top: int | None = option(None, "Number of a sweep's confirmed winners to export; default: 1.", panel="Of a sweep")
    unconfirmed: bool = option(False, "Export the best search trials of a sweep, without confirmation.")
    formats: tuple[str, ...] = option(
        (),
        "safetensors, onnx or torch-export; repeatable. safetensors is always written.",
        flag="--format",
        panel="Files",
    )
    checkpoint: str = option("last", "Checkpoint of a run: last, or best by the run's objective.", panel="Of a run")
    overwrite: bool = option(False, "Replace an existing export.", panel="Files")


@takes(ExportOptions)
def export(given: ExportOptions) -> None:
    """Write encoders as safetensors with cards that say how good they are and how to load them.

    Examples:

    ebclab export runs/first --to encoder --format onnx

    ebclab export sweeps/mine --to best --top 3
    """
    from ebclab.config.addresses import is_address
    from ebclab.export.formats import formats_named
    from ebclab.export.place import landed
    from ebclab.export.run import export_run, export_sweep, is_sweep

    source, to, asked = given.source, given.to, formats_named(given.formats)
    of_sweep, overwrite = is_sweep(source), given.overwrite
    if of_sweep and given.checkpoint != "last":
        raise UserError(f"--checkpoint: a sweep ranks last checkpoints, got {given.checkpoint}; leave it out")
    if not of_sweep and (given.top is not None or given.unconfirmed):
        word = "--top" if given.top is not None else "--unconfirmed"
        raise UserError(f"{word}: is for sweeps, got {given.source}, which holds no sweep.yaml; leave it out")
    with landed(to, overwrite, of_sweep=of_sweep) as target:
        if of_sweep:
            best, few = 1 if given.top is None else given.top, given.unconfirmed
            folder, places, notes = export_sweep(
                source, target, top=best, unconfirmed=few, formats=asked, overwrite=overwrite
            )
            shown, card = ", ".join(place.folder for place in places) + " ", "each shows how to load it"
        else:
            kind = given.checkpoint
            folder, notes = export_run(source, target, checkpoint_kind=kind, formats=asked, overwrite=overwrite)
            shown, card = "", "it shows how to load the encoder"
    for note in notes:
        say(f"warning: {note}", err=True)
    also = ", leaderboard.csv lists all" if of_sweep else ""
    line = f"exported {shown}to {to if is_address(to) else folder}; README.md in {card}{also}"
    say(fitted(line, sys.stdout))
