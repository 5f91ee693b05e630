"""Exports the encoder of a run as a folder, with a card."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ebclab.config import ExperimentConfig, to_yaml
from ebclab.data.image_set import require_digest
from ebclab.data.photograph import Reading
from ebclab.data.sources.image_source import read_rows, statistics_rows
from ebclab.data.sources.load import open_source
from ebclab.data.sources.location import location_of, short_name
from ebclab.errors import DataError, EbclabError
from ebclab.evaluation.answers import Score
from ebclab.export.card import CardFacts
from ebclab.export.encoder_folder import save_encoder
from ebclab.export.energies import Energies, no_energy
from ebclab.export.formats import Comparison, Format
from ebclab.export.load_energies import energies_of_run
from ebclab.formatting import count
from ebclab.runs.evaluate import Evaluation, checkpoint_name
from ebclab.runs.folder import EVALUATION, RunFolder
from ebclab.runs.trained_encoder import TrainedEncoder, load_trained_encoder
from ebclab.storage.reading import read_typed
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
