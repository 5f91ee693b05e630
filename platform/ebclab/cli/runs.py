"""``ebclab runs``: lists, shows, cleans up and deletes runs, sweeps, comparisons and reproductions."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ebclab.cli.options import RESULTS
from ebclab.errors import UserError
from ebclab.formatting import folded, in_cell, is_terminal, row_lines, size
from ebclab.terminal import console, say

if TYPE_CHECKING:
    from ebclab.inventory.listing import Entry

app = typer.Typer(help="List and show runs, sweeps and comparisons, clean up, delete.", no_args_is_help=True)

_Runs = Annotated[str | None, typer.Option("--runs", help="Folder of runs; default: ./runs."), RESULTS]
_COLUMNS = ("name", "method", "data", "done", "score", "state", "size", "age")
_DROPPED = ("size", "age")  # in this order, if the table is too wide
_FOLDED = {"name": 16, "done": 10, "data": 12, "method": 8}  # then wrapped, in this order, to at least so many cells
_BETWEEN = 2  # spaces after a column
_Sweeps = Annotated[str | None, typer.Option("--sweeps", help="Folder of sweeps; default: ./sweeps."), RESULTS]
_Comparisons = Annotated[
    str | None, typer.Option("--comparisons", help="Folder of comparisons; default: ./comparisons."), RESULTS
]


@app.command("list")
def list_runs(
    runs: _Runs = None,
    sweeps: _Sweeps = None,
    comparisons: _Comparisons = None,
    method: Annotated[str | None, typer.Option(help="Only this method.", rich_help_panel="Which")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.", rich_help_panel="Which")] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only this state: running, finished, unfinished or unreadable.", rich_help_panel="Which"),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            help="Sort by date, name, method, dataset, state, done, score, knn or size; best first.",
            rich_help_panel="Printed",
        ),
    ] = "date",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: a list of objects with all numbers.", rich_help_panel="Printed")
    ] = False,
) -> None:
    """List runs, sweeps and comparisons with progress, score and size.

    Examples:

    ebclab runs list --state unfinished

    ebclab runs list --dataset cifar10 --sort knn
    """
    import json

    from ebclab.inventory.listing import chosen, collection_at, inventory

    given = {"runs": runs, "sweeps": sweeps, "comparisons": comparisons}
    places = [collection_at(place, usual) for usual, place in given.items()]
    entries = inventory(*places)
    if entries:
        entries = chosen(entries, method=method, dataset=dataset, state=state, sort=sort)
    if as_json:
        say(json.dumps([entry.to_mapping() for entry in entries], indent=1))
    elif entries:
        say("\n".join(_fitting_table(entries, console().width, time.time())))
    else:
        filters = {"method": method, "dataset": dataset, "state": state}
        asked = ", ".join(f"{word} {value}" for word, value in filters.items() if value)
        where = (f"no {usual} in {place.address}" for usual, place in zip(given, places, strict=True))
        say(f"{', '.join(where)}{asked and f' with {asked}'}")


def _fitting_table(entries: list[Entry], width: int, now: float) -> list[str]:
    """Return the lines of a table of the entries; if it is too wide, size and age are dropped, then cells wrapped.

    Rich's own tables take a thousand times as long, i.e. seconds for thousands of runs.
    """
    from rich.cells import cell_len

    rows = [{name: in_cell(text) for name, text in entry.in_words(now).items()} for entry in entries]
    columns = {name: [name, *(row[name] for row in rows)] for name in _COLUMNS}
    room = {name: max(map(cell_len, cells)) + _BETWEEN for name, cells in columns.items()}
    for dropped in _DROPPED:
        if sum(room.values()) > width:
            del room[dropped]
    for folding, least in _FOLDED.items():
        spare = width - sum(room.values())
        if spare < 0:
            room[folding] = max(room[folding] + spare, min(room[folding], least + _BETWEEN))
    lines = []
    for cells in zip(*(columns[name] for name in room), strict=True):
        told = [
            folded(cell, space - _BETWEEN) if cell_len(cell) > space - _BETWEEN else [cell]
            for cell, space in zip(cells, room.values(), strict=True)
        ]
        lines += row_lines(told, [space - _BETWEEN for space in room.values()], _BETWEEN)
    return lines


@app.command("show")
def show(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Names in --runs, or folders or addresses.", show_default=False),
        RESULTS,
    ],
    runs: _Runs = None,
) -> None:
    """Show runs side by side: settings that differ, scores, speed, machine, events.

    `ebclab report RUN...` draws their curves.

    Examples:

    ebclab runs show first

    ebclab runs show first second
    """

    from ebclab.document.text import print_blocks
    from ebclab.inventory.listing import places_of
    from ebclab.reports.runs.facts import open_runs, side_by_side

    records = open_runs(places_of(names, runs or "runs"))
    print_blocks(side_by_side(records, console().width))


@app.command("clean")
def clean(
    runs: _Runs = None,
    sweeps: _Sweeps = None,
    comparisons: _Comparisons = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """List what can be deleted without loss, and delete it if you confirm.

    That is checkpoints of finished search trials except the best, and files that Ray left behind, also in
    comparisons and ./reproductions. Other runs, confirmed winners and folders in use are kept.

    Examples:

    ebclab runs clean

    ebclab runs clean --sweeps s3://bucket/sweeps --yes
    """
    from ebclab.inventory.deletion import find_waste, remove
    from ebclab.inventory.listing import collection_given, room_freed

    given = {"runs": runs, "sweeps": sweeps, "comparisons": comparisons, "reproductions": None}
    wastes = find_waste(*(collection_given(place, usual) for usual, place in given.items()))
    if not wastes:
        say("nothing to delete")
        return
    for owner, why in dict.fromkeys((waste.owner, waste.why) for waste in wastes):
        paths = [waste.path for waste in wastes if (waste.owner, waste.why) == (owner, why)]
        say(f"{size(room_freed(paths)):>9}  {owner}: {why}")
    say(f"{size(room_freed(waste.path for waste in wastes)):>9}  in all")
    if _may_delete(yes, "delete it?"):
        freed, busy = remove(wastes)
        for path in busy:
            say(f"warning: {path}: left alone, a process works in it by now", err=True)
        say(f"freed {size(freed)}")


def _may_delete(yes: bool, question: str) -> bool:
    """Return whether --yes or the answer in a terminal allows to delete; if not, say that nothing was deleted.

    Where nobody can be asked, the command ends with the exit code of wrong input.
    """
    if not yes and not is_terminal(sys.stdin):
        say("nothing was deleted; --yes deletes it")
        raise typer.Exit(UserError.exit_code)
    agreed = yes or typer.confirm(question)
    if not agreed:
        say("nothing was deleted")
    return agreed


@app.command("delete")
def delete(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Names of runs, sweeps, comparisons and reproductions.", show_default=False
        ),
    ],
    runs: _Runs = None,
    sweeps: _Sweeps = None,
    comparisons: _Comparisons = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Delete whole runs, sweeps, comparisons and reproductions, finished or not, so that their names are free.

    On a disk or in a store. With --runs, --sweeps or --comparisons, only these folders are looked into. What a process
    works in is refused.

    Examples:

    ebclab runs delete first second

    ebclab runs delete mine --sweeps sweeps --yes
    """
    from ebclab.inventory.deletion import delete as delete_whole
    from ebclab.inventory.deletion import find_named

    targets = find_named(names, runs, sweeps, comparisons)
    for target in targets:
        say(f"{size(target.num_bytes):>9}  {target.in_words()}")
    if _may_delete(yes, "delete all of it? This cannot be undone"):
        for target in targets:
            delete_whole(target)
            say(f"deleted {target.folder.address}")
