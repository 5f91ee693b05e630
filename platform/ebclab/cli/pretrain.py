"""``ebclab pretrain``: one run, started, continued or reported."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebclab.cli.settings import as_assignments, composed

if TYPE_CHECKING:
    from ebclab.config import ExperimentConfig
    from ebclab.runs.summary import Throughput
    from ebclab.training.pretrain import RunResult


_SHORT = {
    "dataset": "data.name",
    "data_root": "data.root",
    "epochs": "training.epochs",
    "seed": "seed",
    "init": "init.weights",
}
"""Options that are settings, by name."""


def pretrain(
    method: Annotated[str, typer.Argument(help="Method; `ebclab show --methods` lists them.", show_default=False)],
    recipe: Annotated[str | None, typer.Option(help="Named settings; `ebclab show --recipes` lists them.")] = None,
    config: Annotated[
        str | None, typer.Option(help="YAML file of settings, as `ebclab show` prints and runs keep.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Same as --set data.name=...")] = None,
    data_root: Annotated[str | None, typer.Option(help="Folder that holds datasets.")] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="W", help="0: this process; 2: two Ray workers; 1:4: as many as there are.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Same as --set training.epochs=...")] = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set seed=...")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; METHOD-DATASET-seedSEED when left out.")] = None,
    runs: Annotated[str, typer.Option(help="Folder that holds runs, or an address: s3://bucket/runs.")] = "runs",
    init: Annotated[
        str | None, typer.Option(metavar="DIR", help="Weights to start from: export, finished run, or timm/NAME.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. method.temperature=0.2.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run with the settings it has.")] = False,
) -> None:
    """Pretrain an encoder into a run folder.

    Repeating a command continues an unfinished run and prints the result of a finished one.
    """
    from ebclab.training.pretrain import pretrain as run_pretraining

    given = {"dataset": dataset, "data_root": data_root, "epochs": epochs, "seed": seed, "init": init}
    overrides = as_assignments(given, _SHORT, _worker_settings(workers) + (assignments or []))
    if resume and recipe is None and config is None:
        settings = _saved_settings(method, runs, name, overrides)
    else:
        settings = composed(method, recipe, config, overrides)
    report(run_pretraining(settings, runs=runs, name=name, resume=resume))


def report(run: RunResult) -> None:
    """Print what a finished run found and what can be done next."""
    from ebclab.evaluation.objectives import OBJECTIVES, shown_score

    summary = run.summary
    if run.was_finished:
        typer.echo("this run had already finished; nothing was trained")
    facts: dict[str, Any] = {
        "run": run.address,
        "trained": f"{summary.method} on {summary.dataset}, {summary.epochs} epochs, {summary.steps} steps",
        "time": f"{summary.seconds:,.0f} s" + _rate(summary.images_per_second),
    }
    if best := summary.best:
        name, value = best.objective, summary.scores[best.objective]
        facts[OBJECTIVES[name]] = (
            f"{shown_score(name, value)} on {summary.holdout_images} images "
            f"(best {shown_score(name, best.value)} after epoch {best.epoch})"
        )
    facts["next"] = f"ebclab evaluate {shlex.quote(run.address)}"
    for key, value in facts.items():
        typer.echo(f"{key:>13}: {value}")


def _rate(rate: Throughput | None) -> str:
    """Return images per second, with their spread where more than one time was taken."""
    if rate is None:
        return ""
    spread = f" +/- {rate.std:,.0f}" if rate.std else ""
    return f", {rate.mean:,.0f}{spread} img/s"


def _worker_settings(workers: str | None) -> list[str]:
    """Return ``--workers 2`` or ``--workers 1:4`` as assignments."""
    from ebclab.errors import UserError

    if workers is None:
        return []
    fewest, _, most = workers.partition(":")
    if not fewest.isdigit() or not (most or "0").isdigit() or workers.endswith(":"):
        raise UserError(f"--workers: not a number of workers, got {workers!r}; write 0, 2 or MIN:MAX such as 1:4")
    return [f"resources.workers={int(fewest)}", f"resources.max_workers={int(most or 0)}"]


def _saved_settings(method: str, runs: str, name: str | None, overrides: list[str]) -> ExperimentConfig:
    """Return the settings of the run that is to be continued, with this command's overrides on top."""
    from ebclab.config import compose, to_mapping
    from ebclab.config.names import require_folder_name
    from ebclab.errors import RunError
    from ebclab.runs.folder import RunFolder
    from ebclab.storage.remote import remote_in
    from ebclab.training.pretrain import default_name

    name = default_name(compose(method, overrides=overrides)) if name is None else require_folder_name(name)
    folder = RunFolder.at(remote_in(runs, name) or Path(runs) / name).of("reader").pull()
    if not folder.config_path.is_file():
        raise RunError(f"{folder.address}: nothing to resume, no run of this name; leave --resume out to start one")
    return compose(method, config=to_mapping(folder.read_config()), overrides=overrides)


def settings_of(given: dict[str, Any]) -> ExperimentConfig:
    """Return the settings of a new run from this command's options.

    Args:
        given: Value of each option by name, as the command line's parser has them.
    """
    assignments = _worker_settings(given["workers"]) + list(given["assignments"] or [])
    overrides = as_assignments(given, _SHORT, assignments)
    return composed(given["method"], given["recipe"], given["config"], overrides)
