"""``ebclab export``: a run's encoder as a folder that opens elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="Folder to make.", show_default=False)],
    checkpoint: Annotated[str, typer.Option(help="last, or best by held-out kNN.")] = "last",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
) -> None:
    """Write a run's encoder as safetensors with a card that says how good it is and how to load it."""
    from ebclab.export.run import export_run

    folder, notes = export_run(run, to, checkpoint_kind=checkpoint, overwrite=overwrite)
    for note in notes:
        typer.echo(f"warning: {note}", err=True)
    typer.echo(f"exported to {folder}; README.md in it shows how to load the encoder")
