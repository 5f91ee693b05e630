"""The verbs of ``ebclab``, listed by hand. Verbs import what they need when they run: ``--help`` stays quick."""

from __future__ import annotations

import typer

from ebclab.cli import cluster, data, evaluate, export, pretrain, report, runs, show, submit, sweep
from ebclab.cli.studies import compare, reproduce

app = typer.Typer(
    name="ebclab",
    help="Pretrain, measure and export visual encoders with contrastive and energy-based methods.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
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
