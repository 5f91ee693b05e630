"""``ebclab evaluate``: measures a run's encoder on the test set."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ebclab.cli.options import RESULTS, DataRoot
from ebclab.errors import UnsavedError, UserError

if TYPE_CHECKING:
    from ebclab.evaluation.intervals import Score
    from ebclab.evaluation.progress import OnProgress
    from ebclab.runs.evaluate import Evaluation


def evaluate(
    run: Annotated[
        str, typer.Argument(help="Run folder, or its address: s3://bucket/runs/name.", show_default=False), RESULTS
    ],
    dataset: Annotated[str | None, typer.Option(help="Measure on another dataset than the run's own.")] = None,
    data_root: DataRoot = None,
    only: Annotated[
        str, typer.Option(help="Probes, separated by commas; or chains, a picture of them.")
    ] = "knn,linear",
    protocol: Annotated[
        str | None, typer.Option(help="Linear probe protocol; `ebclab show --protocols` lists them.")
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="last, or best by held-out kNN.")] = "last",
    references: Annotated[
        bool, typer.Option("--references", help="Also measure raw pixels and the untrained encoder.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a run's frozen encoder on the test set and keep the scores beside the run."""
    probes = tuple(part.strip() for part in only.split(","))
    if "chains" in probes:
        return _picture_chains(run, data_root, checkpoint, only)
    import json

    from ebclab.runs.evaluate import evaluate_run

    unsaved = None
    with _probe_progress() as on_progress:
        try:
            scores = evaluate_run(
                run,
                dataset=dataset,
                data_root=data_root,
                only=probes,
                protocol=protocol,
                checkpoint_kind=checkpoint,
                references=references,
                on_progress=on_progress,
            )
        except UnsavedError as error:
            scores, unsaved = cast("Evaluation", error.result), error
    if as_json:
        typer.echo(json.dumps(scores.to_mapping(), indent=2))
    else:
        _print_table(scores.title, scores.rows)
    if unsaved is not None:
        raise unsaved


def _picture_chains(run: str, data_root: str | None, checkpoint: str, only: str) -> None:
    from ebclab.runs.evaluate import checkpoint_name
    from ebclab.training.chain_picture import picture_chains

    if only.strip() != "chains":
        raise UserError(f"--only: chains is a picture and no probe, got {only}; ask for it in a command of its own")
    picture = picture_chains(run, data_root=data_root, checkpoint_kind=checkpoint_name(checkpoint))
    typer.echo(f"wrote {picture}")


def _print_table(title: str, rows: dict[str, dict[str, Score]]) -> None:
    """Print one line an encoder, one column a probe."""
    from rich.console import Console
    from rich.table import Table

    probes: dict[str, Any] = {probe: None for scores in rows.values() for probe in scores}
    table = Table(title=title, title_justify="left")
    table.add_column("features")
    for probe in probes:
        table.add_column(probe, justify="right")
    for name, scores in rows.items():
        table.add_row(name, *(_summary(scores[probe]) if probe in scores else "" for probe in probes))
    Console(highlight=False).print(table)
    typer.echo("[low, high]: 95 % interval over test images, for this run alone")


def _summary(score: Score) -> str:
    """Return accuracy, its spread over seeds where there are several, and its interval over test images."""
    spread = f" +/- {100 * score.std:.1f}" if score.std is not None else ""
    return f"{100 * score.value:.1f} %{spread} [{100 * score.low:.1f}, {100 * score.high:.1f}]"


@contextmanager
def _probe_progress() -> Iterator[OnProgress]:
    """Yield a callback (done, total, what) that moves one bar a task; it does nothing when stderr is no terminal."""
    from ebclab.evaluation.progress import silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def on_progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield on_progress
