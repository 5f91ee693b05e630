"""``ebclab sample``: long chains of a run's own sampler, drawn and measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ebclab.cli.options import RESULTS, DataRoot, set_option, takes
from ebclab.cli.progress import progress_bar
from ebclab.errors import UnsavedError, UserError
from ebclab.formatting import count
from ebclab.terminal import console, say

if TYPE_CHECKING:
    from ebclab.evaluation.samples import SampleMeasures
    from ebclab.training.samples import Samples

_CLASSES = 20  # of the table, at most


@dataclass(frozen=True)
class SampleOptions:
    """Arguments and options of ``ebclab sample``; see the help text of each option."""

    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Run of ebclr, jem or vem-image (folder or address).", show_default=False),
        RESULTS,
    ]
    source: Annotated[
        Literal["noise", "data", "buffer"],
        typer.Option(
            "--from", help="Where chains begin: uniform pixels, views of training images, the run's replay buffer."
        ),
    ] = "noise"
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of the run's own sampler, without restarts.")] = 500
    count: Annotated[int, typer.Option(metavar="M", help="Number of chains; the picture shows up to 16.")] = 64
    seed: Annotated[int, typer.Option(help="Seed of starts and noise; the same seed gives the same samples.")] = 0
    overrides: Annotated[
        list[str] | None, set_option("Setting of the method other than the run's, e.g. method.step_size=0.02.")
    ] = None
    checkpoint: Annotated[str, typer.Option(help="Checkpoint: last, or best by the run's objective.")] = "last"
    data_root: DataRoot = None
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="Folder for the files; default: that of the run."),
        RESULTS,
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@takes(SampleOptions)
def sample(options: SampleOptions) -> None:
    """Run long chains of an energy-based run; draw them by step, and measure them beside real test images."""
    from ebclab.config.timm_names import TIMM
    from ebclab.export.load_energies import is_export
    from ebclab.runs.evaluate import checkpoint_name
    from ebclab.training.samples import SampleRequest, sample_chains

    if options.run.startswith(TIMM) or is_export(options.run):
        raise UserError(f"RUN: an encoder alone has no chains, got {options.run}; name the run that it comes from")
    request = SampleRequest(options.source, options.steps, options.count, options.seed, tuple(options.overrides or ()))
    unsaved = None
    with progress_bar() as on_progress:
        try:
            done = sample_chains(
                options.run,
                request,
                checkpoint_kind=checkpoint_name(options.checkpoint),
                to=options.to,
                data_root=options.data_root,
                on_progress=on_progress,
            )
        except UnsavedError as error:
            done, unsaved = cast("Samples", error.result), error
    if options.as_json:
        say(json.dumps(done.to_mapping(), indent=2))
    else:
        _print_table(done)
    if unsaved is not None:
        raise unsaved
    if not options.as_json:
        for place in done.written:
            say(f"wrote {place}")


def _print_table(done: Samples) -> None:
    from rich import box
    from rich.table import Table

    asked = done.request
    weights = f"{done.method}, {done.checkpoint} checkpoint, step {done.training_step:,}"
    say(f"{weights}: {count(asked.count, 'chain')} from {asked.source}")
    columns = [*done.samples.values(), done.test_images]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("after steps")
    for title in (*(f"{step:,}" for step in done.samples), "test images"):
        table.add_column(title, justify="right")
    for title, cells in _rows(columns):
        table.add_row(title, *cells)
    lines = [
        "saturated: pixels more than a tenth of the range beyond black or white",
        "distances: root mean square over pixels, black 0, white 1",
    ]
    if done.judge:
        accuracy = done.judge["test_accuracy"]
        lines.append(
            f"answers: a logistic regression on pixels of {count(done.judge['train_images'], 'training image')}"
            + ("" if accuracy is None else f", which is right on {100 * accuracy:.1f} % of test images")
        )
    screen = console()
    screen.print(table)
    for line in lines:
        screen.print(line)


def _rows(columns: list[SampleMeasures]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table; what was measured of no column is left out."""

    def shown(value: float | None, form: str) -> str:
        return "" if value is None else form.format(value)

    rows = [
        ("saturated, %", [f"{100 * each.saturation:.1f}" for each in columns]),
        ("energy, nats", [f"{each.energy:.{'2f' if abs(each.energy) < 1e5 else '1e'}}" for each in columns]),
        ("distance of two", [shown(each.diversity, "{:.3f}") for each in columns]),
        ("to nearest training", [f"{each.nearest:.3f}" for each in columns]),
        ("entropy of answers", [shown(each.entropy, "{:.2f}") for each in columns]),
    ]
    classes = list(columns[0].class_shares or ())
    if len(classes) <= _CLASSES:
        rows += [
            (f"answer {name}, %", [f"{100 * (each.class_shares or {})[name]:.0f}" for each in columns])
            for name in classes
        ]
    return [(title, cells) for title, cells in rows if any(cells)]
