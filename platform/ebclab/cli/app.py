"""The commands of ``ebclab``; each imports its dependencies only when it runs, so that ``--help`` stays fast."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ebclab.cli import (
    cluster,
    compare,
    data,
    demo,
    evaluate,
    export,
    pretrain,
    report,
    reproduce,
    runs,
    sample,
    show,
    submit,
    sweep,
)
from ebclab.errors import InterruptedRunError
from ebclab.terminal import say


class _Plain:
    """A command or a group; its help shows arguments in capitals and no type for flags."""

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return the names of the option; by default those of the context in which a command is parsed first."""
        return ["-h", "--help"]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with metavars for ``--help``."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                name = (parameter.metavar or parameter.name.upper()).removesuffix("...")
                parameter.metavar = f"{name}..." if parameter.nargs == -1 else name
            elif getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            elif getattr(parameter, "multiple", False) and parameter.metavar is None:
                parameter.metavar = parameter.display_type(ctx).replace("list[", "").replace("]", "")
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; its reader may go, as after ``| head -1``: rich would exit with 1."""
        with suppress(SystemExit):
            super().format_help(ctx, formatter)  # type: ignore[misc]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C has a sentence, where typer would exit in silence."""
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except KeyboardInterrupt:
            raise InterruptedRunError from None


class _Verb(_Plain, TyperCommand):
    """A command; its usage has arguments as pages write them, METHOD and not {method}."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the name of the command in its usage."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(each.metavar if each.required else f"[{each.metavar}]" for each in arguments)]


class _Verbs(_Plain, TyperGroup):
    """A group of commands."""


app = typer.Typer(
    cls=_Verbs,
    name="ebclab",
    help="Pretrain, measure and export visual encoders with contrastive and energy-based methods.",
    epilog="Examples:\n\nebclab demo\n\nebclab compare simclr vicreg --dataset digits --batch-size 64 --show",
    no_args_is_help=True,
)


def _print_version(asked: bool) -> None:
    if asked:
        import ebclab

        say(f"ebclab {getattr(ebclab, '__version__', 'of a source folder that is not installed')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-v", "-V", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that stand before a verb."""


app.command("demo")(demo.demo)
app.command("pretrain")(pretrain.pretrain)
app.command("evaluate")(evaluate.evaluate)
app.command("sample")(sample.sample)
app.command("search")(evaluate.search)
app.command("export")(export.export)
app.command("sweep")(sweep.sweep)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("show")(show.show)
app.command("submit", context_settings=submit.READS_THE_REST)(submit.submit)
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.add_typer(cluster.app, name="cluster")

for _group in app.registered_groups:
    _group.cls = _Verbs
for _part in (app, runs.app, data.app, cluster.app):
    for _command in _part.registered_commands:
        _command.cls = _Verb
        _blocks = (_command.callback.__doc__ or "").split("\n\n")
        _text = "\n\n".join(" ".join(text.split()) for text in _blocks)  # wrapped at the terminal's width
        _command.help, _, _examples = _text.partition("\n\nExamples:")
        _command.epilog = f"Examples:{_examples}" if _examples else None

parser: Any = typer.main.get_command(app)
"""Parses and runs a command line. Made once: making it takes longer than most refusals."""
