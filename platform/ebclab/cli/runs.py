"""``ebclab runs``: lists runs and sweeps, frees disk space and names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ebclab.cli.options import RESULTS
from ebclab.formatting import age, size

if TYPE_CHECKING:
    from ebclab.inventory.listing import Entry

app = typer.Typer(help="List runs and sweeps, free disk and names.", no_args_is_help=True)

_Runs = Annotated[str | None, typer.Option("--runs", help="Folder of runs; ./runs when left out."), RESULTS]
_COLUMNS = ("name", "method", "data", "done", "score", "state", "size", "age")
_BETWEEN = 2  # spaces after a column
_Sweeps = Annotated[str | None, typer.Option("--sweeps", help="Folder of sweeps; ./sweeps when left out."), RESULTS]


@app.command("list")
def list_runs(runs: _Runs = None, sweeps: _Sweeps = None) -> None:
    """List runs and sweeps: how far they came, how good, how large."""
    from rich.console import Console

    from ebclab.inventory.folders import collection_at
    from ebclab.inventory.listing import inventory

    places = collection_at(runs, "runs", "--runs"), collection_at(sweeps, "sweeps", "--sweeps")
    entries = inventory(*places)
    if not entries:
        typer.echo(f"no runs in {places[0].address} and no sweeps in {places[1].address}")
        return
    typer.echo("\n".join(_fitting_table(entries, Console().width)))


def _fitting_table(entries: list[Entry], width: int) -> list[str]:
    """Return the lines of a table of the entries: where it is too wide, the least needed columns go, then names fold.

    Rich's own tables take a thousand times as long, which is seconds for thousands of runs.
    """
    from rich.cells import cell_len, chop_cells

    words = [vars(entry) | {"size": size(entry.num_bytes), "age": age(entry.age)} for entry in entries]
    columns = {name: [name, *(str(row[name]) for row in words)] for name in _COLUMNS}
    room = {name: max(map(cell_len, cells)) for name, cells in columns.items()}
    shown = list(_COLUMNS)
    for dropped in ("method", "data"), ("age",):
        if sum(room[name] + _BETWEEN for name in shown) <= width:
            break
        shown = [name for name in shown if name not in dropped]
    room["name"] = min(room["name"], max(width - sum(room[name] + _BETWEEN for name in shown[1:]) - _BETWEEN, 1))
    lines = []
    for cells in zip(*(columns[name] for name in shown), strict=True):
        first, *more = chop_cells(cells[0], room["name"]) if cell_len(cells[0]) > room["name"] else cells[:1]
        gaps = [
            " " * (room[name] + _BETWEEN - cell_len(cell))
            for name, cell in zip(shown, (first, *cells[1:]), strict=True)
        ]
        lines.append("".join(cell + gap for cell, gap in zip((first, *cells[1:]), gaps, strict=True)))
        lines += more
    return lines


@app.command("clean")
def clean(
    runs: _Runs = None,
    sweeps: _Sweeps = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Show what can go without loss, and delete it when you say so.

    Checkpoints of search trials that are over, but for the best; what Ray left behind. Runs of their own, confirmed
    winners and whatever a process works in stay.
    """
    from ebclab.inventory.cleanup import find_waste, remove
    from ebclab.inventory.files import room_freed
    from ebclab.inventory.folders import collection_given

    wastes = find_waste(collection_given(runs, "runs", "--runs"), collection_given(sweeps, "sweeps", "--sweeps"))
    if not wastes:
        typer.echo("nothing to delete")
        return
    for owner, why in dict.fromkeys((waste.owner, waste.why) for waste in wastes):
        paths = [waste.path for waste in wastes if (waste.owner, waste.why) == (owner, why)]
        typer.echo(f"{size(room_freed(paths)):>9}  {owner}: {why}")
    typer.echo(f"{size(room_freed(waste.path for waste in wastes)):>9}  in all")
    if not yes and not sys.stdin.isatty():
        typer.echo("nothing was deleted; --yes deletes it")
    elif yes or typer.confirm("delete it?"):
        freed, busy = remove(wastes)
        for path in busy:
            typer.echo(f"warning: {path}: left alone, a process works in it by now", err=True)
        typer.echo(f"freed {size(freed)}")
    else:
        typer.echo("nothing was deleted")


@app.command("delete")
def delete(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names of runs and sweeps.", show_default=False)
    ],
    runs: _Runs = None,
    sweeps: _Sweeps = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Delete whole runs and sweeps, finished or not, on a disk or in a store, so that their names are free.

    With --runs or --sweeps alone, only that folder is looked into. What a process works in is refused.
    """
    from ebclab.inventory.deletion import delete as delete_whole
    from ebclab.inventory.deletion import find_named

    targets = find_named(names, runs, sweeps)
    for target in targets:
        typer.echo(f"{size(target.num_bytes):>9}  {target.in_words()}")
    if not yes and not sys.stdin.isatty():
        typer.echo("nothing was deleted; --yes deletes it")
    elif yes or typer.confirm("delete all of it? It cannot be had back"):
        for target in targets:
            delete_whole(target)
            typer.echo(f"deleted {target.folder.address}")
    else:
        typer.echo("nothing was deleted")
