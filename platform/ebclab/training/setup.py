"""From settings to everything that a training loop needs: images, method, optimizer, batches."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ebclab.config import VIEW_RECIPES, ExperimentConfig
from ebclab.config.sections import DataConfig
from ebclab.data.class_labels import shared_names
from ebclab.data.delivery.choose import require_neighbours
from ebclab.data.delivery.resident import ResidentData
from ebclab.data.holdout import Split, split_images
from ebclab.data.image_set import ImageSet, repeats, require_digest
from ebclab.data.own_images import Images, own_images
from ebclab.data.photograph import Reading
from ebclab.data.preprocessing import Preprocessing, preprocessing_for
from ebclab.data.sources.load import load_split
from ebclab.data.views.pipeline import ViewSettings
from ebclab.encoders.build import differences, room_problems, seeded_encoder
from ebclab.errors import ConfigError
from ebclab.formatting import first_few
from ebclab.formatting import size as readable
from ebclab.hardware import free_bytes, require_precision
from ebclab.methods_by_name import method_problems
from ebclab.optimization.optimizers import build_optimizer
from ebclab.optimization.schedules import learning_rates, peak_learning_rate, weight_decays
from ebclab.runs.folder import RunFolder
from ebclab.runs.initial_weights import InitialWeights, start_from
from ebclab.storage.lease import FencingToken
from ebclab.training.callbacks import Scheduled
from ebclab.training.captured import CapturedSteps, obstacle
from ebclab.training.loop import BatchSource, Training
from ebclab.training.process_group import ALONE, Ranks
from energy_contrast.method import Draw, Method, Requirements
from energy_contrast.networks.batch_norm import groups_in, has_batch_norm, require_groups

_BYTES_OF_A_PIXEL = 4  # views are float32
_SHOWN = 5  # names in a message
_FEW_REPEATED = 0.01  # share of held-out images that does not count, as in published datasets
_made: list[weakref.ref[Method]] = []  # the newest method of this process


@dataclass(frozen=True)
class RunSpec:
    """A run: its settings, its method, its images and its folder."""

    run: RunFolder  # the run folder, held by the process that launched the run
    config: ExperimentConfig  # resolved settings
    method_class: type[Method]  # the method to train
    images: Split | None  # the user's own training images in place of the dataset that ``config`` names
    command: tuple[str, ...]  # the command line that the user ran
    weights: InitialWeights | None = None  # what the encoder of a new run starts from; None means random weights
    token: FencingToken | None = None  # the token under which a run folder in a store is held
    callbacks: tuple[Scheduled, ...] = ()  # the user's own code, which rank 0 runs
    references: bool = False  # measure raw pixels and the untrained encoder on held-out images in the end


@dataclass(frozen=True)
class DataFacts:
    """The facts that every checkpoint holds, so that its encoder can be rebuilt and its images recognised."""

    in_channels: int
    image_size: int  # side of the views, pixels
    mean: tuple[float, ...]  # of each channel, for normalisation
    std: tuple[float, ...]
    data_digest: str
    train_images: int
    holdout_images: int
    num_classes: int  # 0 if the method reads no labels


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to train."""

    training: Training  # the loop's state
    draw: Draw  # draws views of training images, for ``Method.start``
    bank: ImageSet  # training images that held-out ones are scored against: all of them, or a part of a stream
    holdout: ImageSet  # held-out images that the run is scored on, chosen by ``evaluation.scored_on``; may be empty
    preprocessing: Preprocessing  # preprocessing of images without augmentation, as the encoder expects them
    facts: DataFacts
    digest: str  # digest of the images; stored in the run's settings as ``data.digest``
    replayable: bool = True  # earlier batches can be read again; a stream gives each batch once


def prepare(
    config: ExperimentConfig,
    device: torch.device,
    images: Split | None,
    method_class: type[Method],
    ranks: Ranks = ALONE,
    weights: InitialWeights | None = None,
) -> Prepared:
    """Build everything that one rank of a run with resident images needs, without communication between ranks.

    Args:
        images: The user's own images, as ``split_own`` returns them, in place of the dataset that ``config`` names.
        weights: Initial weights of the encoder; None means random ones.
    """
    split = images or load_images(config.data)
    require_digest(split.content, config.data.digest, config.data.name)
    preprocessing = preprocessing_for(config.views, split.train)
    channels, size = split.train.images.shape[1], preprocessing.image_size
    labels = split.train.labels, split.train.class_names
    method, num_classes = method_for(config, method_class, *labels, channels, preprocessing, device, ranks, weights)
    with method_problems(method_class):
        num_proposals = method.num_proposals(config.training.batch_size)
    settings = ViewSettings(
        config.views, preprocessing, config.seed, config.training.batch_size, method.num_views, num_proposals
    )
    data = ResidentData(
        split.train,
        settings,
        device=device,
        channels_last=config.training.channels_last,
        rank=ranks.rank,
        world_size=ranks.world_size,
    )
    scored = split.scored(config.evaluation.scored_on)
    require_neighbours(len(split.train), len(scored), config.evaluation)
    counts = len(split.train), len(scored), num_classes
    facts = DataFacts(channels, size, preprocessing.mean, preprocessing.std, split.digest, *counts)
    training = build_training(config, method, data, (channels, size, size), device, ranks)
    return Prepared(training, data.draw, split.train, scored, preprocessing, facts, split.content)


def method_for(
    config: ExperimentConfig,
    method_class: type[Method],
    labels: Tensor,
    class_names: Sequence[str],
    channels: int,
    preprocessing: Preprocessing,
    device: torch.device,
    ranks: Ranks,
    weights: InitialWeights | None,
) -> tuple[Method, int]:
    """Return the method for images with these labels, on its device, and its number of classes; refuse what it cannot.

    Labels are those of all training images, as ``classes_of`` takes them.
    """
    size = preprocessing.image_size
    _free_before()
    require_different_views(config, method_class, channels)
    require_room_for_views(config, method_class, channels, size, device, ranks)
    num_classes = classes_of(config, method_class, labels, class_names)
    method = build_method(config, method_class, channels, device, size, weights, num_classes)
    method.pixel_range, method.num_images = preprocessing.pixel_range, len(labels)
    memory_of(method, channels, size)
    _made[:] = [weakref.ref(method)]
    return method, num_classes


def _free_before() -> None:
    """Free what the run before in this process has left in circles of references, such as EBCLR's replay buffer.

    Python looks for them when it has made many objects, which runs do not; looking takes half a second.
    """
    if any(method() is not None for method in _made):
        gc.collect()


def load_images(data: DataConfig) -> Split:
    """Return the training images that ``data`` names, split as it says."""
    return _split(data, load_split(data.name, data.root, "train", Reading.of(data)))


def split_own(data: DataConfig, images: Images) -> Split:
    """Return the user's own training images, split as ``data`` says."""
    return _split(data, own_images(images))


def _split(data: DataConfig, whole: ImageSet) -> Split:
    return split_images(
        whole, train_limit=data.train_limit, holdout_rate=data.holdout_rate, confirm_rate=data.confirm_rate
    )


def requirements_of(config: ExperimentConfig, method_class: type[Method]) -> Requirements:
    """Return what the method of a run needs for training, without building it."""
    with method_problems(method_class):
        found = method_class.requirements(config.method, config.training.batch_size)
        if not isinstance(found, Requirements):
            raise TypeError(f"requirements must return Requirements, not {type(found).__name__}")
    return found


def classes_of(config: ExperimentConfig, method_class: type[Method], labels: Tensor, class_names: Sequence[str]) -> int:
    """Return the number of classes for a method that learns from labels; 0 for any other.

    ``labels`` (n,) are those of all training images, -1 where unknown; ``class_names`` may be empty.
    """
    if not requirements_of(config, method_class).labels:
        return 0
    name, missing, total = config.method_name, int((labels < 0).sum()), len(labels)
    if missing:
        raise ConfigError(
            f"method.name: {name} learns from labels, got {missing:,} of {total:,} training images without; label "
            "them, or take a method that needs none (`ebclab show --methods`)"
        )
    classes: Tensor = torch.unique(labels)
    if len(classes) < 2:
        raise ConfigError(
            f"method.name: {name} learns to separate classes, got {len(classes)} in {total:,} training images; "
            "use images of two classes at least"
        )
    return max(int(classes.max()) + 1, len(class_names))


def neighbours_problem(config: ExperimentConfig, method: Method) -> str | None:
    """Return a warning if chains move by energies of images that depend on the rest of the batch, else None."""
    if not requirements_of(config, type(method)).images_alone or not has_batch_norm(method.encoder):
        return None
    return (
        f"{config.method_name}: an image's energy depends on its neighbours in the batch, because the encoder has "
        "batch norm, so that chains follow gradients which are not their own; set encoder.batch_norm=none, or take an "
        "encoder without it"
    )


def unscored_problem(config: ExperimentConfig, facts: DataFacts) -> str | None:
    """Return a warning if the held-out share of few images turns out to be empty, else None."""
    confirms = config.evaluation.scored_on == "confirm"
    name, rate = ("confirm_rate", config.data.confirm_rate) if confirms else ("holdout_rate", config.data.holdout_rate)
    if facts.holdout_images or rate == 0 or config.evaluation.knn_every == 0:
        return None
    return (
        f"data.{name}: none of the {facts.train_images:,} images is held out, got {rate:g}; there will be no scores "
        "and no best checkpoint; hold a larger share out, or none (0)"
    )


def names_problem(config: ExperimentConfig, class_names: Sequence[str]) -> str | None:
    """Return a warning if several classes have one name, else None."""
    if not (shared := shared_names(class_names)):
        return None
    return (
        f"{config.data.name}: several classes have one name, got {first_few(shared, _SHOWN)}; they are told apart by "
        "their labels, and an answer with the other one counts as wrong: give them one label if they are one class"
    )


def repeated_problem(config: ExperimentConfig, bank: ImageSet, scored: ImageSet) -> str | None:
    """Return a warning if more than a few held-out images are training images too, else None."""
    found = repeats(bank, scored)
    if found.images <= _FEW_REPEATED * len(scored):
        return None
    words = found.in_words(len(scored), "held-out")
    return f"{config.data.name}: {words}; their scores are of what was learnt, so leave copies out"


def build_method(
    config: ExperimentConfig,
    method_class: type[Method],
    in_channels: int,
    device: torch.device,
    image_size: int = 0,
    weights: InitialWeights | None = None,
    num_classes: int = 0,
) -> Method:
    """Return the method with freshly initialised weights, a pure function of ``config.seed`` and ``weights``.

    Args:
        image_size: Side of the views, pixels; 0 if not known yet.
        num_classes: Number from ``classes_of``; passed only to methods that need labels.
    """
    with room_problems(), seeded_encoder(config.encoder, config.seed, in_channels, image_size) as encoder:
        if weights is not None:
            start_from(encoder, config.encoder, weights, in_channels, image_size)
        with method_problems(method_class):
            labels = requirements_of(config, method_class).labels
            given = encoder.state_dict()
            method = method_class(config.method, encoder, *([num_classes] if labels else []))
    if other := differences(given, method.encoder.state_dict()):  # nothing could read its checkpoints
        also = "its encoder is not the network that it was given, which evaluation and export rebuild"
        way = "keep that network, and put layers of your own beside it"
        raise ConfigError(f"method.name: {also}, got {config.method_name} with {other[0]}; {way}")
    memory_format = torch.channels_last if config.training.channels_last else torch.contiguous_format
    with room_problems():
        method.to(device=device, memory_format=memory_format)  # type: ignore[call-overload]
    if config.training.compile in (True, "default"):
        method.compile_parts()
    return method


class LargeBatchError(ValueError):
    """The training images are too few for a batch."""


def require_batches(
    config: ExperimentConfig, method_class: type[Method], split: Split, weights: InitialWeights | None
) -> str | None:
    """Check that a run could train on these images: build its method, without any batch; return a warning.

    Raises:
        LargeBatchError: The training images are too few for one batch, with the proposals of the method.
    """
    batch_size = config.training.batch_size
    channels, size = split.train.images.shape[1], preprocessing_for(config.views, split.train).image_size
    require_different_views(config, method_class, channels)
    num_classes = classes_of(config, method_class, split.train.labels, split.train.class_names)
    method = build_method(config, method_class, channels, torch.device("cpu"), size, weights, num_classes)
    if batch_size + method.num_proposals(batch_size) > len(split.train):
        raise LargeBatchError
    require_parts(config, method, max(1, config.resources.workers))
    return neighbours_problem(config, method)


def require_different_views(config: ExperimentConfig, method_class: type[Method], channels: int) -> None:
    """Check that the views of an image differ, for a method that compares several of them."""
    views = requirements_of(config, method_class).num_views
    if views > 1 and config.views.are_equal(channels):
        known = ", ".join(name for name in VIEW_RECIPES if name != "none")
        raise ConfigError(
            f"views.recipe: {config.method_name} compares {views} views of an image, and with these settings they "
            f"are all the same, got {config.views.recipe} and nothing drawn on {channels} channel(s); "
            f"name one of {known}, or set views.crop_scale_min, views.flip_rate and the like"
        )


def require_room_for_views(
    config: ExperimentConfig, method_class: type[Method], channels: int, size: int, device: torch.device, ranks: Ranks
) -> None:
    """Check that one batch of views of ``size`` pixels fits into the free memory of a rank's device."""
    views = requirements_of(config, method_class).num_views
    images = config.training.batch_size // ranks.world_size
    needed, free = images * views * channels * size**2 * _BYTES_OF_A_PIXEL, free_bytes(device)
    if needed > free:
        raise ConfigError(
            f"views.image_size: a batch of views does not fit on {device.type}, got {size} pixels: "
            f"{images} images x {views} views x {channels}x{size}x{size} pixels x {_BYTES_OF_A_PIXEL} bytes = "
            f"{readable(needed)}, {readable(free)} free; use smaller views or a smaller training.batch_size"
        )


def require_parts(config: ExperimentConfig, method: Method, num_ranks: int) -> None:
    """Check that ranks, batch norm groups and chunks can split a global batch evenly."""
    batch_size, chunks = config.training.batch_size, config.training.accumulate
    with method_problems(type(method)):
        require_groups(method, batch_size, num_ranks)
    if chunks == 1:
        return
    if method.not_in_chunks:
        raise ConfigError(
            f"training.accumulate: {config.method_name} cannot pass a batch in chunks: {method.not_in_chunks}, "
            f"got {chunks}; use 1, and a smaller training.batch_size"
        )
    share = batch_size // math.lcm(num_ranks, *groups_in(method))
    if share % chunks:
        fitting = [count for count in range(1, share + 1) if share % count == 0]
        raise ConfigError(
            f"training.accumulate: must divide the {share} images of a batch of {batch_size} that each worker and "
            f"batch norm group has, got {chunks}; use {min(fitting, key=lambda count: abs(count - chunks))}"
        )


def memory_of(method: Method, in_channels: int, image_size: int) -> int:
    """Return how many bytes the memories of a method, on its device, take on each rank."""
    with method_problems(type(method)):
        return method.memory_bytes((in_channels, image_size, image_size))


def build_training(
    config: ExperimentConfig,
    method: Method,
    data: BatchSource,
    view_shape: tuple[int, int, int],
    device: torch.device,
    ranks: Ranks,
) -> Training:
    """Return the loop's state at step 0: method, optimizer, learning rate, batches of views (C, H, W)."""
    require_precision(config.training.precision, device)
    require_parts(config, method, ranks.world_size)
    method.num_chunks = config.training.accumulate
    wants_graph = config.training.compile == "graph"
    reason = obstacle(config, method, device, ranks) if wants_graph else ""
    captured = wants_graph and not reason
    training = Training(
        method=method,
        optimizer=build_optimizer(
            config.optimizer,
            method,
            captured=captured,
            constant=method.at_constant_rate(),
            peak=peak_learning_rate(config.optimizer, config.training.batch_size),
        ),
        generator=torch.Generator(device=device).manual_seed(config.seed),
        data=data,
        learning_rate=learning_rates(config.optimizer, config.training, data.num_batches),
        config=config.training,
        ranks=ranks,
        view_shape=view_shape,
        not_captured=reason,
        clip_norm=config.optimizer.clip_norm,
        weight_decay=weight_decays(config.optimizer, config.training, data.num_batches),
    )
    if captured:
        training.captured = CapturedSteps(device, training.generator, training.tensors)
    return training
