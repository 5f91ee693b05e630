"""Measures the encoder of a run with probes on the test set, and writes the scores into the run folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, get_args

import torch

from ebclab.background import warn_once
from ebclab.config import did_you_mean
from ebclab.config.addresses import FOLDER, LOCATIONS, name_hosts
from ebclab.config.yaml_text import JsonObject
from ebclab.data.class_labels import Labels, as_in_training
from ebclab.data.holdout import limit, rows_of_parts, split_images
from ebclab.data.image_set import STREAMED, ImageSet, repeats, short_digest, stream_digest
from ebclab.data.own_images import Images, own_images, own_name
from ebclab.data.photograph import Reading, Resampling
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.catalogue import are_photographs
from ebclab.data.sources.load import load_both, open_source
from ebclab.data.sources.location import distinct_name
from ebclab.errors import DataError, NoTestPartError, RunError, UnsavedError, UserError
from ebclab.evaluation.answers import Score
from ebclab.evaluation.evaluate import evaluate_encoder
from ebclab.evaluation.features import placed
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.hardware import as_before, num_cores, resolve_device, set_threads
from ebclab.runs import checkpoint
from ebclab.runs.folder import EVALUATION, RunFolder
from ebclab.runs.measured_references import reference_encoder
from ebclab.runs.references import PIXELS, UNTRAINED
from ebclab.runs.trained_encoder import TrainedEncoder, load_trained_encoder
from ebclab.storage import atomic
from ebclab.storage.filesystem import Location
from energy_contrast.method import Method

_log = logging.getLogger("ebclab.evaluation")

HOLDOUT_RATE = 0.1
"""Fraction of the training images that are held out to choose by, or to measure on, by hash of their keys."""


class MeasuredImages(NamedTuple):
    """Images that an encoder is measured on."""

    name: str  # of the dataset
    train: ImageSet
    test: ImageSet
    held_out: bool = False  # the dataset has no test part, and ``test`` are those of its images held out by hash


@dataclass(frozen=True)
class Evaluation:
    """Scores of a run's encoder, and of reference features."""

    dataset: str
    checkpoint: str  # the kind, "last" or "best"
    step: int  # optimizer steps behind it
    finished: bool  # the run had finished
    num_train: int  # labelled images that the probes train on
    num_test: int
    # probe scores by the name of the features: the run's method, "raw pixels", "untrained encoder"
    rows: dict[str, dict[str, Score]]
    held_out: bool = False  # the dataset has no test part, and its test images are held out by hash

    @property
    def title(self) -> str:
        """Title of the table: dataset, test images and checkpoint."""
        state = "" if self.finished else ", run not finished"
        images = images_in_words(self.dataset, self.num_test, self.held_out)
        return f"{images} ({self.checkpoint} checkpoint, step {self.step}{state})"

    def to_mapping(self) -> JsonObject:
        """Return everything but the answers to single images as plain values."""
        plain = asdict(self)
        for scores in plain["rows"].values():
            for score in scores.values():
                del score["answers"]
        return plain if self.held_out else {key: value for key, value in plain.items() if key != "held_out"}


def images_in_words(dataset: str, count: int, held_out: bool) -> str:
    """Return what an encoder was measured on."""
    kind = "held-out image" if held_out else "image"
    return f"{dataset}{'' if held_out else ' test set'}, {count:,} {kind}{'s' if count != 1 else ''}"


@as_before()
def evaluate_run(
    where: str | Path | RunFolder,
    *,
    dataset: str | None = None,
    data_root: str | Path | None = None,
    only: Sequence[str] = ("knn", "linear"),
    protocol: str | None = None,
    checkpoint_kind: str = "last",
    kept_step: int | None = None,
    scaling: tuple[int, Resampling] | None = None,
    train_limit: int = 0,
    references: bool = False,
    images: tuple[Images, Images] | None = None,
    methods: Mapping[str, type[Method]] | None = None,
    load: Callable[..., tuple[ImageSet, ImageSet]] | None = None,
    must_have_test: bool = False,
    on_progress: OnProgress = silent,
) -> Evaluation:
    """Measure a run's frozen encoder and write ``evaluation.json`` (or ``evaluation-<dataset>.json``) into its folder.

    The probes train on the whole training set or on ``train_limit`` images of it, including held-out ones, because
    selection is over.

    Args:
        where: The run: its folder, or its address in an object store.
        dataset: Dataset of the probes; None means the run's own.
        data_root: Folder that holds datasets; None means the run's own.
        only: Probes by name.
        protocol: Linear probe protocol; None means the run's setting.
        kept_step: Measure the checkpoint that ``training.keep_every`` kept after this many steps, and write no file.
        scaling: Side and resampling of images, if not as the run's own are scaled; no file is written either.
        train_limit: Training images that the probes use, chosen by hash as ``data.train_limit`` does; 0: all.
        references: Also measure raw pixels and the encoder before its first step.
        images: Own training and test images in place of a dataset, see ``own_images``.
        methods: Own methods by name, for runs that were made with one.
        load: Reads a dataset in place of ``load_both``, such as ``Kept(load_both)`` for many runs on the same images.
        must_have_test: Refuse a dataset without test images, of which else held-out images are measured.
    """
    name_hosts(where if isinstance(where, str) else "", dataset)
    kind: checkpoint.Kind = checkpoint_name(checkpoint_kind) if kept_step is None else "kept"
    run = (where if isinstance(where, RunFolder) else RunFolder.at(where)).of("reader").pull((kind,))
    trained = load_trained_encoder(run, kind, methods, kept_step)
    config = trained.config
    preprocessing = trained.preprocessing.scaled(*scaling) if scaling else trained.preprocessing
    settings = replace(config.evaluation, linear_protocol=protocol or config.evaluation.linear_protocol)
    if images is not None:
        seen = _given_images(trained, images)
    else:
        seen = _images_of_dataset(trained, dataset, data_root, preprocessing, load, must_have_test=must_have_test)
    train, test = (with_channels(part, trained.in_channels, config.method_name) for part in (seen.train, seen.test))
    if (repeated := repeats(train, test)).images:
        _log.warning("%s: %s", seen.name, repeated.in_words(len(test), "held-out" if seen.held_out else "test"))
    if not (train_limit or must_have_test):  # studies and sweeps say what their numbers are of
        tell_of_labels(trained, seen.name, len(train))
    train = limit(train, train_limit)
    device = resolve_device(config.resources.device)
    set_threads(min(config.resources.threads, num_cores()))  # the run's machine may have more
    encoders = {config.method_name: (trained.encoder, preprocessing)}
    if references:
        encoders |= {each: reference_encoder(each, config, preprocessing) for each in (UNTRAINED, PIXELS)}
    rows = {
        each: evaluate_encoder(
            placed(encoder, device),
            train,
            test,
            as_input,
            settings,
            device=device,
            only=only,
            seed=config.seed,
            on_progress=on_progress,
        )
        for each, (encoder, as_input) in encoders.items()
    }
    counts = len(train), len(test)
    evaluation = Evaluation(seen.name, kind, trained.step, trained.finished, *counts, rows, seen.held_out)
    if kept_step is None and scaling is None:
        write_evaluation(run, evaluation, config.data.name)
    return evaluation


def tell_of_labels(trained: TrainedEncoder, dataset: str, num_labelled: int) -> None:
    """Log once that probes learn from more images of a dataset than its run was trained on."""
    limited = trained.config.data.train_limit
    if dataset == trained.config.data.name and 0 < limited < num_labelled:
        warn_once(
            _log.name,
            f"{dataset}: probes learn from the labels of all {num_labelled:,} training images, the run was trained on "
            f"{limited:,}; `ebclab evaluate --only classification --train-limit {limited}` uses as many",
        )


def write_evaluation(run: RunFolder, evaluation: Evaluation, own_dataset: str) -> None:
    """Write ``evaluation.json``, or ``evaluation-<dataset>.json`` for another dataset, into the run folder."""
    name = evaluation.dataset
    file = EVALUATION if name == own_dataset else f"evaluation-{distinct_name(name)}.json"
    try:
        atomic.write_json(run.path / file, evaluation.to_mapping())
        run.send(file)
    except (OSError, RunError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        raise UnsavedError(
            f"{run.address_of(run.path / file)}: the scores were measured and cannot be written, got {reason}",
            evaluation,
        ) from error


def checkpoint_name(name: str) -> checkpoint.Kind:
    """Return ``name`` as a kind of checkpoint that an evaluation may measure."""
    for kind in get_args(checkpoint.Kind):
        if name == kind and kind != "kept":
            return kind  # type: ignore[no-any-return]
    raise UserError(f"--checkpoint: no such checkpoint, got {name!r}; {did_you_mean(name, ['last', 'best'])}")


def images_of_run(
    trained: TrainedEncoder,
    dataset: str | None,
    root: str | Path | None,
    preprocessing: Preprocessing | None = None,
    *,
    needs_test: bool = True,
    load: Callable[..., tuple[ImageSet, ImageSet]] | None = None,
) -> MeasuredImages:
    """Return name, training and test images of a dataset; the run's own must be those that it was trained on.

    None means the run's own dataset, and its own folder of datasets. ``preprocessing`` scales images of other datasets.
    Unless ``needs_test``, a dataset may have one part, which is both.
    """
    data = trained.config.data
    name, reading = dataset or data.name, Reading.of(data)
    if are_photographs(name) and not reading.resize:
        reading = replace(reading, resize=trained.preprocessing.image_size)
    is_other = name != data.name and name.startswith(FOLDER)
    if reading.labels and is_other and not Location(name.removeprefix(FOLDER)).has(reading.labels):
        reading = replace(reading, labels="")
    seen = preprocessing or trained.preprocessing
    if name != data.name:
        resize = seen.read_size if reading.resize and seen != trained.preprocessing else reading.resize
        reading = replace(reading, resize=resize, resampling=seen.resampling)
    side = 0 if name == data.name else seen.image_size
    train, test = (load or load_both)(name, str(root) if root else data.root, reading, needs_test=needs_test, side=side)
    if name == data.name and not recognises(trained, train):
        if data.digest or trained.data_digest:
            raise _other_images(name, "restore them; of a run with images of your own, give those to ebclab.evaluate")
        _log.warning("%s: the run does not say which images it was trained on; measured on those of today", name)
    return MeasuredImages(name, train, test)


def _images_of_dataset(
    trained: TrainedEncoder,
    dataset: str | None,
    root: str | Path | None,
    preprocessing: Preprocessing,
    load: Callable[..., tuple[ImageSet, ImageSet]] | None,
    *,
    must_have_test: bool,
) -> MeasuredImages:
    """Return a dataset's images; without a test part those held out by hash, unless it must have one."""
    try:
        return images_of_run(trained, dataset, root, preprocessing, load=load)
    except NoTestPartError:
        if must_have_test:
            raise
        return held_out_images(images_of_run(trained, dataset, root, preprocessing, needs_test=False), trained)


def held_out_images(whole: MeasuredImages, trained: TrainedEncoder | None) -> MeasuredImages:
    """Return images of a dataset without a test part: those held out by hash in place of its test images.

    Of the images that the run was trained on, by whatever name, these are those that it held out of training.
    """
    name, images, rates = whole.name, whole.train, (0, HOLDOUT_RATE, 0.0)
    data = trained.config.data if trained is not None and _is_of_run(trained, whole) else None
    if data is not None:
        rates = (data.train_limit, data.holdout_rate, data.confirm_rate)
    is_test = torch.zeros(len(images), dtype=torch.bool)
    is_test[rows_of_parts(images.keys, *rates)[1]] = True
    if not 0 < int(is_test.sum()) < len(images):
        more = HOLDOUT_RATE if rates[1] < HOLDOUT_RATE else 0.5
        remedy = "measure on more images" if data is None else f"train the next run with data.holdout_rate={more:g}"
        raise NoTestPartError(
            f"data.name: {name} has no test images, so that held-out ones are needed, got {int(is_test.sum()):,} of "
            f"its {len(images):,} images; {remedy}, or add test images"
        )
    return MeasuredImages(name, images.rows(~is_test), images.rows(is_test), held_out=True)


def _is_of_run(trained: TrainedEncoder, whole: MeasuredImages) -> bool:
    """Return whether images are those of a run, by the name of their dataset or under another one by their digest."""
    data = trained.config.data
    if whole.name == data.name:
        return True
    if data.digest.startswith(STREAMED) and not whole.name.startswith(LOCATIONS):
        return False
    try:
        return recognises(trained, whole.train, whole.name)
    except DataError:  # files that cannot be read as the run's own are
        return False


def _given_images(trained: TrainedEncoder, images: object) -> MeasuredImages:
    """Return name, training and test images that a user gives; the run's own are recognised by their digest."""
    data = trained.config.data
    if not isinstance(images, tuple | list) or len(images) != 2:
        raise DataError(f"images: two are needed, (train, test), got {type(images).__name__}")
    train, test = (own_images(each) for each in images)
    of_test, of_train = (Labels(each.labels, each.class_names) for each in (test, train))
    labels = as_in_training(of_test, of_train, train.name)
    test = replace(test, labels=labels.numbers, class_names=labels.names)
    name = own_name(train.name)
    if name == data.name or not data.digest:
        recognised = recognises(trained, train)
        if name == data.name and not recognised:
            raise _other_images(name, "give them another name to measure on them as another set")
        name = data.name if recognised else name
    return MeasuredImages(name, train, test)


def _other_images(name: str, remedy: str) -> DataError:
    return DataError(f"{name}: not the images that the run was trained on, by their digest; {remedy}")


def recognises(trained: TrainedEncoder, whole: ImageSet, name: str = "") -> bool:
    """Return whether a run was trained on ``whole`` or a part of it, by the digest that it recorded.

    ``name`` is that of the dataset, by default the run's own; files of a run that streamed them are read there.
    Runs of older versions have a digest only in their checkpoints.
    """
    data = trained.config.data
    rates = {"holdout_rate": data.holdout_rate, "confirm_rate": data.confirm_rate}
    split = split_images(whole, train_limit=data.train_limit, **rates)
    if data.digest.startswith(STREAMED):
        source = open_source(name or data.name, "train", Reading.of(data))
        parts = [(part.keys, part.labels) for part in split.parts]
        return data.digest == stream_digest(*parts, class_names=source.class_names, files_digest=source.files_digest)
    if data.digest:
        return data.digest == split.content
    return trained.data_digest in (split.digest, short_digest(split.train.keys, split.train.labels))


def with_channels(images: ImageSet, channels: int, label: str) -> ImageSet:
    """Return images with an encoder's number of channels: grey images are repeated, colour is never discarded."""
    stored = images.images.shape[1]
    if stored not in (1, channels):
        raise DataError(
            f"{images.name}: {label} takes images of {channels} channel(s), got {stored}; choose a dataset with as many"
        )
    if stored == channels:
        return images
    pixels = images.images.expand(-1, channels, -1, -1).contiguous()
    return replace(images, images=pixels, mean=images.mean * channels, std=images.std * channels)
