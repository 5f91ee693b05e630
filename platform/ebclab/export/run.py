"""Exports the encoder of a run as a folder with a card, and those of a sweep's winners with a leaderboard."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ebclab.config import ExperimentConfig, to_yaml
from ebclab.config.addresses import expanded
from ebclab.config.check import short
from ebclab.data.image_set import require_digest
from ebclab.data.photograph import Reading
from ebclab.data.sources.image_source import read_rows, statistics_rows
from ebclab.data.sources.load import open_source
from ebclab.data.sources.location import location_of, short_name
from ebclab.document.document import CellValue, Table
from ebclab.document.text import as_csv
from ebclab.errors import DataError, EbclabError, RunError, UserError
from ebclab.evaluation.answers import Score
from ebclab.evaluation.objectives import OBJECTIVES, format_of
from ebclab.export.card import CardFacts
from ebclab.export.encoder_folder import save_encoder
from ebclab.export.energies import Energies, no_energy
from ebclab.export.formats import Comparison, Format
from ebclab.export.load_energies import energies_of_run
from ebclab.export.place import refuse_occupied, replaced_folder
from ebclab.formatting import PROBES, count
from ebclab.runs.evaluate import Evaluation, checkpoint_name
from ebclab.runs.folder import EVALUATION, RunFolder
from ebclab.runs.trained_encoder import TrainedEncoder, load_trained_encoder
from ebclab.storage import atomic
from ebclab.storage.object_store import Store
from ebclab.storage.reading import read_typed
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import finite
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import ConfirmedSettings, SeedScores, SweepResult, confirming_run, ranked
from ebclab.training.setup import load_images


def export_run(
    path: str | Path | RunFolder,
    to: str | Path,
    *,
    checkpoint_kind: str = "last",
    formats: Sequence[Format] = (),
    overwrite: bool = False,
    title: str = "",
    sweep_lines: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> tuple[Path, list[str]]:
    """Write the encoder of a run into the folder ``to``; return that, and warnings for the user (e.g. no scores).

    ``formats`` are written in addition to the weights, verified on images of the run if these are available. The card
    has the heading ``title`` (by default the run's name), lines about the sweep of the run, and ``remarks`` first.
    """
    kind = checkpoint_name(checkpoint_kind)
    run = (path if isinstance(path, RunFolder) else RunFolder.at(path)).of("reader").pull((kind,))
    trained = load_trained_encoder(run, kind)
    scores, held_out = _scores(run, trained)
    energies, why_not = _energies(run, trained)
    notes = [*remarks, *_notes(trained, scores), *why_not]
    facts = CardFacts(
        title=title or run.path.name,
        method_name=trained.config.method_name,
        settings_yaml=to_yaml(trained.config),
        data_lines=_data_lines(run, trained),
        scores=scores,
        notes=notes,
        sweep_lines=sweep_lines,
        dataset=short_name(trained.config.data.name),
        held_out=held_out,
    )
    folder = save_encoder(
        to,
        trained.encoder,
        architecture=trained.config.encoder,
        in_channels=trained.in_channels,
        preprocessing=trained.preprocessing,
        facts=facts,
        formats=formats,
        comparison=comparison_for(trained.config, trained.in_channels) if formats else None,
        energies=energies,
        overwrite=overwrite,
    )
    return folder, notes


def _energies(run: RunFolder, trained: TrainedEncoder) -> tuple[Energies | None, list[str]]:
    """Return the energies by the run's method, or why a method that has them is exported without."""
    if no_energy(trained.config):
        return None, []
    try:
        return energies_of_run(run, trained), []
    except EbclabError as error:  # no images, a store that is not reached, NaN: the encoder alone can still be exported
        return None, [f"exported without energies of images, which need vectors of the run's training images: {error}"]


def _notes(trained: TrainedEncoder, scores: list[Score]) -> list[str]:
    notes = list(trained.findings)
    if not trained.finished:
        epochs = trained.config.training.epochs
        notes.append(f"exported from an unfinished run, after {trained.epochs_done} of {epochs} epochs")
    if not scores:
        notes.append("no scores: `ebclab evaluate` has not measured this checkpoint on all images yet")
    return notes


def _scores(run: RunFolder, trained: TrainedEncoder) -> tuple[list[Score], bool]:
    """Return the scores that ``ebclab evaluate`` saved for this checkpoint, and whether they are of held-out images."""
    path = run.path / EVALUATION
    if not path.exists():
        return [], False
    saved = read_typed(path, Evaluation, what="not an evaluation", remedy="`ebclab evaluate` writes it again")
    if saved.step != trained.step:
        return [], False
    labelled = f"; {saved.num_train:,} labelled training images"  # fewer than all in a sweep with a data.train_limit
    own = saved.rows.get(trained.config.method_name, {})
    return [replace(score, detail=f"{score.detail}{labelled}") for score in own.values()], saved.held_out


def _data_lines(run: RunFolder, trained: TrainedEncoder) -> list[str]:
    digest = trained.config.data.digest or "not recorded"
    lines = [f"dataset: {trained.config.data.name} (digest of the images: {digest})"]
    result = run.read_result()
    if result is not None:
        lines.append(f"trained on {result.train_images:,} images, {result.holdout_images:,} held out")
    if start := trained.config.init.weights:
        lines.append(f"the encoder started from {start} (SHA-256 of the weights {trained.config.init.digest})")
    if copied := trained.config.training.copied_weights:
        lines.append(
            f"a member of a population: it continued with the weights of {copied}; settings alone do not reproduce it"
        )
    if decay := trained.config.training.average_weights:
        lines.append(f"the weights, with batch norm's running statistics, are an average over steps of decay {decay:g}")
    trained_for = f"{count(trained.epochs_done, 'epoch')}, {count(trained.step, 'optimizer step')}"
    lines.append(f"{trained_for}, seed {trained.config.seed}")
    if result is not None:
        lines += [extension.in_words() for extension in result.extensions]
    elif ends := trained.config.training.extended:
        lines.append(f"extended from {', '.join(map(str, ends))} to {trained.config.training.epochs} epochs")
    return lines


LIMIT = 64
"""Maximum number of images for the comparison."""

_log = logging.getLogger("ebclab.export")


def comparison_for(config: ExperimentConfig, in_channels: int) -> Comparison | None:
    """Return images of the dataset that ``config`` names; None if it is not available or does not fit.

    For a dataset of the catalogue: held-out images, or training images if fewer than two are held out. For a dataset
    given by its location: training images, chosen by hash.
    """
    try:
        images, kind = _read(config)
    except DataError as error:
        _log.warning("comparing on noise: %s", error)
        return None
    if len(images) < 2 or images.shape[1] != in_channels:  # the run was trained on images passed by its caller
        return None
    return images, f"{len(images)} {kind} images of {config.data.name}"


def _read(config: ExperimentConfig) -> tuple[Tensor, str]:
    name, reading = config.data.name, Reading.of(config.data)
    if location_of(name) is not None:
        source = open_source(name, "train", reading)
        return read_rows(source, source.index.at(statistics_rows(source.index.keys)[:LIMIT])).images, "training"
    split = load_images(config.data)
    require_digest(split.content, config.data.digest, name)
    chosen, kind = (split.holdout, "held-out") if len(split.holdout) > 1 else (split.train, "training")
    return chosen.images[:LIMIT], kind


_UNCONFIRMED = (
    "not confirmed: ranked by one run of one seed, and by the very value that the search chose it by, "
    "which is too high on average"
)


@dataclass(frozen=True)
class LeaderboardRow:
    """One set of settings on a sweep's leaderboard."""

    rank: int  # rank, starting at 1
    # the settings and their scores; those of a search trial if the leaderboard is not confirmed
    confirmed: ConfirmedSettings
    run: str  # name of the run folder whose weights are exported: the run of the first seed

    @property
    def trial(self) -> str:
        return self.confirmed.source

    @property
    def seed(self) -> int:
        return self.confirmed.seeds[0]

    @property
    def folder(self) -> str:
        return f"{self.rank}-{self.trial}"

    def to_mapping(self) -> dict[str, Any]:
        """Return the row as plain values."""
        of_settings = ("settings", "seeds", "values", "seeds_asked", "mean", "std", "low", "high", "images")
        plain = {name: getattr(self.confirmed, name) for name in of_settings}
        return {"rank": self.rank, "trial": self.trial, "run": self.run, "seed": self.seed, **plain}


@dataclass(frozen=True)
class Leaderboard:
    """The settings that a sweep tried, ranked."""

    sweep: str  # name of the sweep
    plan: SweepPlan
    places: list[LeaderboardRow]  # the rows, best first
    test: dict[str, SeedScores]  # test scores of the first row by probe; empty if the test set was not read
    is_confirmed: bool  # whether the settings were run again with other seeds


def _confirmed(folder: SweepFolder, plan: SweepPlan) -> Leaderboard:
    """Return the leaderboard of a finished sweep: its confirmed settings, each with the run of its first seed."""
    instead = "or export its unconfirmed best trials with --unconfirmed"
    if not folder.result.is_file():
        where = f"--name {folder.path.name} --sweeps {folder.parent}"
        resume = f"ebclab sweep {plan.config.method_name} {where} --resume"
        raise RunError(
            f"{folder.address}: the sweep has not finished, got no {folder.result.name}; "
            f"finish it with `{resume}`, {instead}"
        )
    result = SweepResult.read(folder.result)
    if not result.candidates:
        raise RunError(
            f"{folder.address}: nothing was confirmed, got --top {plan.top}; resume the sweep with --top 1, {instead}"
        )
    runs = [(entry, confirming_run(entry.source, entry.seeds[0])) for entry in result.candidates]
    return Leaderboard(folder.path.name, plan, _places(runs), result.test or {}, is_confirmed=True)


def _unconfirmed(folder: SweepFolder, plan: SweepPlan) -> Leaderboard:
    """Return the leaderboard of a search: its trials, each with the single value that it was ranked by."""
    trials = ranked(folder.read_log().of_kind("search"))
    if not trials:
        raise RunError(f"{folder.address}: no trial has measured anything, got nothing to export; resume the sweep")
    runs = [(ConfirmedSettings.of_trial(trial), trial.run_name) for trial in trials]
    return Leaderboard(folder.path.name, plan, _places(runs), {}, is_confirmed=False)


def _places(runs: Sequence[tuple[ConfirmedSettings, str]]) -> list[LeaderboardRow]:
    return [LeaderboardRow(rank, entry, run) for rank, (entry, run) in enumerate(runs, start=1)]


def lines_for(board: Leaderboard, place: LeaderboardRow) -> list[str]:
    """Return the lines about the sweep on the card of an exported encoder, one fact per line."""
    plan, objective, entry = board.plan, board.plan.config.evaluation.objective, place.confirmed
    shown = [format_of(objective).number(value) for value in entry.values]
    by_seed = ", ".join(f"{value} (seed {seed})" for seed, value in zip(entry.seeds, shown, strict=True))
    what = f"{OBJECTIVES[objective]} ({objective})"
    kind, why = "trials of the search, not confirmed", "the one of the search"
    if board.is_confirmed:
        kind = "confirmed sets of settings"
        why = "the first of the confirming seeds, whatever it scored: no seed was chosen by its score"
    lines = [
        f"sweep {board.sweep}: {count(plan.trials, 'trial')} of at most {count(plan.epochs, 'epoch')}, {plan.search}, "
        f"{plan.rules.scheduler}, method {plan.config.method_name}",
        f"rank {place.rank} of {len(board.places)} {kind}, by the mean over seeds of {what}: {entry.in_words(plan)}",
        f"mean over {len(entry.seeds)} of {max(entry.seeds_asked, 1)} seeds: {_mean(objective, entry)}; {by_seed}",
        f"these weights: seed {place.seed}, {why}",
        f"protocol: {_protocol(plan)}",
        "searched settings: " + ", ".join(f"{key}={short(value)}" for key, value in entry.settings.items()),
    ]
    if place.rank == 1:
        lines += [
            f"test set, {PROBES[name]}, mean over {len(score.values)} seeds: {_mean('holdout_knn', score)}"
            for name, score in board.test.items()
        ]
    return lines


def _protocol(plan: SweepPlan) -> str:
    evaluation, data = plan.config.evaluation, plan.config.data
    knn = f", {evaluation.knn_neighbours} neighbours" if evaluation.objective == "holdout_knn" else ""
    rate, which = data.holdout_rate, "held out by hash and never trained on"
    if data.confirm_rate:
        rate, which = data.confirm_rate, "kept to confirm by hash, never trained on and seen by no search"
    return (
        f"scored after the last epoch on the {rate:.0%} of the training images of {data.name} that were "
        f"{which}{knn}; the test set chose nothing"
    )


def _mean(objective: str, measured: SeedScores) -> str:
    form = format_of(objective)
    mean = form.number(measured.mean)
    if measured.low is None or measured.high is None:
        return f"{mean}, {'one seed gives' if measured.std is None else 'equal seeds without answers give'} no interval"
    over = f"seeds and {measured.images:,} images" if measured.images else "seeds only"
    return f"{mean}, 95 % interval {form.ends(measured.low, measured.high)} over {over}"


def write_leaderboard(folder: Path, board: Leaderboard, exported: Sequence[LeaderboardRow]) -> None:
    """Write leaderboard.json and leaderboard.csv: every row, and the folder of each exported one."""
    plan = board.plan
    rows = [{**place.to_mapping(), "folder": place.folder if place in exported else None} for place in board.places]
    whole = {
        "format": 1,
        "sweep": board.sweep,
        "method": plan.config.method_name,
        "dataset": plan.config.data.name,
        "objective": plan.config.evaluation.objective,
        "protocol": _protocol(plan),
        "confirmed": board.is_confirmed,
        "test": {name: score.to_mapping() for name, score in board.test.items()},
        "places": rows,
    }
    atomic.write_json(folder / "leaderboard.json", finite(whole))
    atomic.write_text(folder / "leaderboard.csv", _csv(rows))


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return one line per row; each searched setting has a column, and the seeds or values of a row share a cell."""
    plain = ["rank", "trial", "folder", "run", "seed", "mean", "std", "low", "high", "seeds_asked"]
    searched = sorted({key for row in rows for key in row["settings"]})
    lines: list[tuple[CellValue, ...]] = []
    for row in rows:
        several = [" ".join(map(str, row[key])) for key in ("seeds", "values")]
        lines.append((*(row[key] for key in plain), *several, *(row["settings"].get(key) for key in searched)))
    return as_csv(Table("", (*plain, "seeds", "values", *searched), tuple(lines)))


def is_sweep(path: str | Path) -> bool:
    """Return whether ``path``, a folder or an address, is a sweep."""
    folder = SweepFolder.at(path)
    return folder.plan.is_file() if folder.remote is None else Store(folder.remote).stored(folder.plan.name) is not None


def export_sweep(
    path: str | Path,
    to: str | Path,
    *,
    top: int = 1,
    unconfirmed: bool = False,
    formats: Sequence[Format] = (),
    overwrite: bool = False,
) -> tuple[Path, list[LeaderboardRow], list[str]]:
    """Write the encoders of the best ``top`` confirmed settings of a sweep into ``to``, atomically.

    Each is a folder ``<rank>-<trial>`` with the weights of the first confirming seed, so no seed is selected by score.
    If ``unconfirmed``, they are the best trials of the search instead, which may be unfinished. Return the folder, the
    exported rows of the leaderboard, and warnings for the user, one line for each row and reason.
    """
    sweep = SweepFolder.at(path).of("reader").pull_all()
    plan = sweep.read_plan()
    board = (_unconfirmed if unconfirmed else _confirmed)(sweep, plan)
    chosen = _best(board, top)
    for place in chosen:
        if not sweep.run(place.run).newest_checkpoint():
            raise UserError(
                f"{sweep.run(place.run).address}: the weights of rank {place.rank} are gone, got no checkpoint; "
                "were they deleted, by hand or by `ebclab runs clean`?"
            )
    target = expanded(str(to)).resolve()
    refuse_occupied(target, overwrite, of_sweep=True)
    notes = []
    with replaced_folder(target) as aside:
        for place in chosen:
            _, warnings = export_run(
                sweep.run(place.run),
                aside / place.folder,
                formats=formats,
                title=f"{board.sweep}, rank {place.rank}: {place.trial}",
                sweep_lines=lines_for(board, place),
                remarks=[] if board.is_confirmed else [_UNCONFIRMED],
            )
            notes += [f"{place.folder}: {note}" for note in warnings]
        write_leaderboard(aside, board, chosen)
    return target, chosen, notes


def _best(board: Leaderboard, top: int) -> list[LeaderboardRow]:
    if top < 1:
        raise UserError(f"--top: at least one, got {top}")
    if top > len(board.places):
        what = "were confirmed" if board.is_confirmed else "have measured anything"
        raise UserError(f"--top: more than {what}, got {top} of {len(board.places)}; use at most {len(board.places)}")
    return board.places[:top]
