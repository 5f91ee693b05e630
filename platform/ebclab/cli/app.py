"""The verbs of ``ebclab``, listed by hand. Verbs import what they need when they run: ``--help`` stays quick."""

from __future__ import annotations

from typing import Annotated

import typer

from ebclab.cli import cluster, data, evaluate, export, pretrain, report, runs, show, submit, sweep
from ebclab.cli.studies import compare, reproduce

app = typer.Typer(
    name="ebclab",
    help="Pretrain, measure and export visual encoders with contrastive and energy-based methods.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    """Print the version and leave, when it is asked for."""
    if asked:
        import ebclab

        print(f"ebclab {getattr(ebclab, '__version__', 'of a source folder that is not installed')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a verb."""


app.command("pretrain")(pretrain.pretrain)
app.command("sweep")(sweep.sweep)
app.command("compare")(compare.compare)
app.command("submit", context_settings=submit.READS_THE_REST)(submit.submit)
app.command("report")(report.report)
app.command("evaluate")(evaluate.evaluate)
app.command("export")(export.export)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.add_typer(cluster.app, name="cluster")
app.command("show")(show.show)
