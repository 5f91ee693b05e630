"""``ebclab pretrain``: starts, continues or reports one run."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ebclab.cli.options import SettingsOptions, as_assignments, composed, takes, with_named_cluster
from ebclab.config.addresses import LOCATIONS
from ebclab.config.options import option
from ebclab.formatting import count, fitted, is_terminal, presentable, rate
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.config import ExperimentConfig
    from ebclab.runs.summary import Throughput
    from ebclab.training.pretrain import RunResult


_FEW, _PHOTOGRAPH = 10_000, 64
"""Number of images below which, and side of views in pixels from which, pretrained weights are named."""
_FAR = 4
"""Ratio of batch sizes, in either direction, from which a note about a recipe's learning rate is printed."""


@dataclass(frozen=True)
class PretrainOptions(SettingsOptions):
    """Arguments and options of ``ebclab pretrain``; see the help text of each option."""

    epochs: int | None = option(None, sets="training.epochs")
    seed: int | None = option(None, sets="seed")
    workers: str | None = option(
        None, "0: this process; 2: two Ray workers; 1:4: one to four, as available.", metavar="W", panel="Resources"
    )
    name: str | None = option(None, "Name of the run; default: METHOD-DATASET-seedSEED.", panel="Results")
    runs: str = option("runs", "Folder of runs, or an address such as s3://bucket/runs.", is_place_of_results=True)
    resume: bool = option(False, "Continue a run with its recorded settings.", panel="Existing runs")
    extend: int | None = option(
        None, "Continue a run to this new total of epochs; recorded in its settings.", metavar="EPOCHS"
    )
    overwrite: bool = option(False, "Replace an existing run of this name that has finished or has other settings.")
    yes: bool = option(False, "With --overwrite: delete a finished run without asking.")

    @property
    def goes_on(self) -> bool:
        """Whether the command continues an existing run."""
        return self.resume or self.extend is not None

    def settings(self, *, look: bool = True) -> ExperimentConfig:
        """Return the settings of the run: those of this command, or the recorded ones of the run to continue.

        Args:
            look: Inspect images that are given by location; those of a submitted command may be on another machine.
        """
        overrides = self.overrides(workers=_worker_settings(self.workers))
        if self.goes_on and self.recipe is None and self.config is None:
            settings = _saved_settings(self.method, self.runs, self.name, overrides)
        else:
            settings = composed(self.method, self.recipe, self.config, overrides, look=look)
        if not settings.resources.workers:
            return settings
        return with_named_cluster(settings, overrides, self.config or "the run's config.yaml")


@takes(PretrainOptions)
def pretrain(given: PretrainOptions) -> None:
    """Pretrain an encoder into a run folder.

    Repeating a command continues an unfinished run and prints the result of a finished one.

    Examples:

    ebclab pretrain simclr --recipe digits-demo --name first

    ebclab pretrain simclr --dataset folder:photos --workers 2 --epochs 200
    """
    from ebclab.training.pretrain import pretrain as run_pretraining

    settings = given.settings()
    if given.overwrite:
        _make_room(given, settings)
    if note := _note_on_rate(given, settings):
        say(fitted(note, sys.stderr), err=True)
    run = run_pretraining(
        settings, runs=given.runs, name=given.name, resume=given.resume, extend=given.extend, references=True
    )
    report(run)
    if note := note_on_few(settings, run.summary.train_images, shlex.quote(run.address)):
        say(fitted(note, sys.stderr), err=True)


def note_on_few(settings: ExperimentConfig, num_images: int, run: str) -> str:
    """Return a note if few photographs of one's own trained a network from scratch; else an empty string."""
    side = settings.views.image_size or settings.data.resize
    is_own = settings.data.name.startswith(LOCATIONS)
    if not is_own or num_images >= _FEW or side < _PHOTOGRAPH or settings.init.weights:
        return ""
    beside = f"`ebclab evaluate {run} timm/resnet18 --dataset {shlex.quote(settings.data.name)}`"
    start = "`--set encoder.name=timm/resnet18 --init timm/resnet18`"
    return (
        f"{count(num_images, 'image')} are few to train a network from scratch: compare with pretrained features, "
        f"{beside}, or start from them, {start}"
    )


def _note_on_rate(given: PretrainOptions, settings: ExperimentConfig) -> str:
    """Return a note if a run keeps its recipe's learning rate at a very different batch size; else an empty string."""
    if given.recipe is None:
        return ""
    named = as_assignments({"data.name": settings.data.name}, None)
    recipe = composed(given.method, given.recipe, None, named, look=False)
    kept = (recipe.optimizer.name, recipe.optimizer.learning_rate, "none")
    ours, its = settings.training.batch_size, recipe.training.batch_size
    if max(ours, its) < _FAR * min(ours, its) or kept != (
        settings.optimizer.name,
        settings.optimizer.learning_rate,
        settings.optimizer.scaling,
    ):
        return ""
    return (
        f"optimizer.learning_rate: recipe {given.recipe} has {recipe.optimizer.learning_rate:g} for batches of {its} "
        f"images, and this run keeps it for batches of {ours}; --set another, or let `ebclab sweep` look for one"
    )


def _make_room(given: PretrainOptions, settings: ExperimentConfig) -> None:
    """Delete a run of the same name that has other settings, or that has finished if the user confirms it."""
    from ebclab.config.names import require_folder_name
    from ebclab.errors import UserError
    from ebclab.inventory.deletion import deletable, delete, obstacle
    from ebclab.runs.folder import RunFolder
    from ebclab.training.pretrain import default_name

    if given.goes_on:
        option = "--resume" if given.resume else "--extend"
        raise UserError(f"--overwrite: starts over, but {option} continues, got both; leave one out")
    name = default_name(settings) if given.name is None else require_folder_name(given.name)
    found = deletable(given.runs, name, "run")
    why = (
        obstacle(RunFolder.at(found.folder.remote or found.folder.path).of("reader").pull(), settings)
        if found
        else None
    )
    if found is None or why is None:
        return
    if why == "finished" and not given.yes:
        asked = is_terminal(sys.stdin) and typer.confirm(presentable(f"delete the {found.in_words()} and start over?"))
        if not asked:
            raise UserError(
                f"{found.folder.address}: --overwrite would delete a finished run; add --yes, or choose another --name"
            )
    delete(found)
    say(f"deleted the {found.in_words()}" + ("" if why == "finished" else ", which had other settings"), err=True)


def report(run: RunResult) -> None:
    """Print the results of a finished run and a next command."""
    from ebclab.document.text import print_facts
    from ebclab.evaluation.objectives import OBJECTIVES, format_of
    from ebclab.reports.runs.facts import references_in_words
    from ebclab.training.health.policy import open_findings

    summary = run.summary
    if run.was_finished:
        say("this run had already finished; nothing was trained")
    length = f"{count(summary.epochs, 'epoch')}, {count(summary.steps, 'step')}"
    monitored = f", of which monitors {summary.monitor_seconds:,.1f} s" if summary.monitor_seconds else ""
    facts = {
        "run": run.address,
        "trained": f"{summary.method} on {summary.dataset}, {length}",
        **({"extended": "; ".join(each.in_words() for each in summary.extensions)} if summary.extensions else {}),
        "time": f"{summary.seconds:,.0f} s{_speed(summary.images_per_second)}{monitored}",
    }
    if best := summary.best:
        name, value = best.objective, summary.scores[best.objective]
        facts[OBJECTIVES[name]] = (
            f"{format_of(name).number(value)} on {count(summary.holdout_images, 'image')} "
            f"(best {format_of(name).number(best.value)} after epoch {best.epoch})"
        )
    if summary.references:
        facts["references"] = references_in_words(summary)
    if not summary.scores and "effective_rank" in (summary.metrics or {}):
        rank = (summary.metrics or {})["effective_rank"]
        facts["effective rank"] = f"{rank:.1f}: dimensions that embeddings use; needs no labels, 1 is a collapse"
    if findings := open_findings(summary.health):
        facts["health"] = "; ".join(findings.values())
    facts["next"] = _next(summary.dataset, shlex.quote(run.address), has_held_out=summary.holdout_images > 0)
    print_facts(facts)


def _next(dataset: str, run: str, *, has_held_out: bool) -> str:
    """Return the next command after a finished run: evaluate, or export if its images have nothing to measure on."""
    from ebclab.data.sources.load import splits_of
    from ebclab.errors import DataError

    with suppress(DataError):  # the images of a run that finished long ago may be gone
        if not has_held_out and "test" not in splits_of(dataset):
            return f"ebclab export {run} --to DIR; its images have no test part, and none were held out to evaluate on"
    return f"ebclab evaluate {run}"


def _speed(measured: Throughput | None) -> str:
    return f", {rate(measured.mean, measured.std)} img/s" if measured else ""


def _worker_settings(workers: str | None) -> dict[str, object]:
    """Return ``--workers 2`` or ``--workers 1:4`` as settings."""
    from ebclab.errors import UserError

    if workers is None:
        return {}
    fewest, _, most = workers.partition(":")
    if not fewest.isdecimal() or not (most or "0").isdecimal() or workers.endswith(":"):
        raise UserError(f"--workers: not a number of workers, got {workers!r}; write 0, 2 or MIN:MAX such as 1:4")
    return {"resources.workers": int(fewest), "resources.max_workers": int(most or 0)}


def _saved_settings(method: str, runs: str, name: str | None, overrides: list[str]) -> ExperimentConfig:
    """Return the settings of the run to continue, with this command's overrides applied."""
    from ebclab.config import compose, to_mapping
    from ebclab.config.names import require_folder_name
    from ebclab.errors import RunError
    from ebclab.runs.folder import RunFolder
    from ebclab.training.pretrain import default_name

    name = (
        default_name(composed(method, None, None, overrides, look=False)) if name is None else require_folder_name(name)
    )
    folder = RunFolder.named(runs, name).of("reader").pull()
    if not folder.config_path.is_file():
        raise RunError(f"{folder.address}: nothing to resume, no run of this name; leave --resume out to start one")
    settings = to_mapping(folder.read_config())
    if (own := settings["method"]["name"]) != method:
        raise RunError(f"{folder.address}: a run of {own}, got {method}; write `ebclab pretrain {own}`")
    if any(text.startswith("training.epochs=") for text in overrides):
        settings["training"]["extended"] = []  # the command gives the original number of epochs
    return compose(method, config=settings, overrides=overrides)
