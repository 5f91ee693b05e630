"""``ebclab demo``: the first five minutes, as commands that are printed before they run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ebclab.errors import UserError
from ebclab.terminal import say


def demo(
    folder: Annotated[str, typer.Argument(help="Folder to write to; created if needed.")] = "demo",
    show: Annotated[bool, typer.Option("--show", help="Only print the commands.")] = False,
) -> None:
    """Train SimCLR on handwritten digits, evaluate and export it; search its settings and report on them.

    Three minutes, without a download. Each command is printed before it runs. Repeating it continues where it stopped.

    Examples:

    ebclab demo

    ebclab demo mine --show
    """
    from ebclab.config.addresses import is_address
    from ebclab.storage.lock import locked

    if is_address(folder):
        raise UserError(f"FOLDER: the demo writes to a folder of this machine, got {folder}; name one, such as demo")
    folder = str(Path(folder))  # of an empty text the current folder, not the root of the disk
    commands, began_earlier = list(_commands(folder)), Path(folder, "runs").exists()
    if show:
        return say("\n".join(map(shlex.join, commands)))
    with locked(Path(folder), busy="runs this demo", option="`ebclab demo FOLDER`"):
        for command in commands:
            if not (code := _run(command)):
                continue
            if code == UserError.exit_code and began_earlier:
                say(
                    f"FOLDER: the demo in {folder} was begun earlier; if another version of ebclab began it, "
                    "name another folder with `ebclab demo FOLDER`, or delete this one",
                    err=True,
                )
            raise typer.Exit(code)
    say(
        f"\nThe demo in {folder} is done; what is finished is not trained again. Open in a browser:\n"
        f"  {folder}/report.html                   the search, which starts from too low a learning rate\n"
        f"  {folder}/runs/digits/card/card.html    the evaluation\n"
        f"  {folder}/views.png                     what training saw\n"
        f"{folder}/encoder/README.md says how to load the encoder."
    )


def _commands(folder: str) -> Iterator[list[str]]:
    run, sweep, recipe = f"{folder}/runs/digits", f"{folder}/sweeps/digits", ("--recipe", "digits-demo")
    search = ("--space", "examples/digits", "--trials", "8", "--epochs", "3")
    start = ("--set", "optimizer.learning_rate=0.0001")  # too low, so that there is something to find
    confirm = ("--set", "training.epochs=20", "--top", "1", "--seeds", "3")
    for command in (
        ("data", "show", "digits", *recipe, "--views", f"{folder}/views.png"),
        ("pretrain", "simclr", *recipe, "--epochs", "40", "--name", "digits", "--runs", f"{folder}/runs"),
        ("evaluate", run, "--references"),
        ("export", run, "--to", f"{folder}/encoder", "--overwrite"),
        ("sweep", "simclr", *recipe, *start, *search, *confirm, "--name", "digits", "--sweeps", f"{folder}/sweeps"),
        ("report", sweep, "--to", f"{folder}/report.html"),
        ("export", sweep, "--to", f"{folder}/best", "--overwrite"),
    ):
        yield ["ebclab", *command]


def _run(command: list[str]) -> int:
    """Print a command, run it in this process, and return its exit code."""
    from ebclab.cli import main

    say(f"\n$ {shlex.join(command)}")
    sys.argv = command  # what runs and sweeps record
    return main(command[1:])
