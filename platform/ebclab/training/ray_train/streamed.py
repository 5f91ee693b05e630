"""Streamed delivery in a run: decides whether to stream, and prepares training on a worker's shard of the stream."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ebclab.config import ExperimentConfig
from ebclab.data.delivery.choose import Choice, Delivery, choose_delivery
from ebclab.data.delivery.resident import ResidentData
from ebclab.data.holdout import Split, rows_of_parts
from ebclab.data.image_set import STREAMED
from ebclab.data.photograph import Reading
from ebclab.data.sources.load import dataset_named, open_source
from ebclab.data.sources.location import location_of
from ebclab.data.views.pipeline import ViewSettings
from ebclab.errors import ConfigError
from ebclab.hardware import free_bytes
from ebclab.methods_by_name import method_problems
from ebclab.runs.initial_weights import InitialWeights
from ebclab.training.process_group import Ranks
from ebclab.training.setup import DataFacts, Prepared, build_training, classes_of, method_for, requirements_of
from energy_contrast.method import Method

if TYPE_CHECKING:
    from ebclab.data.delivery.ray_data.driver import Stream


def delivery_of(config: ExperimentConfig, images: Split | None, device: torch.device) -> Choice:
    """Return how the images of a run reach its workers, and why; a run that has started keeps its delivery.

    The user's own ``images`` are always resident; ``device`` would hold resident ones.
    """
    if images is not None:
        return Choice("resident", "images in memory: given as such")
    workers = config.resources.workers
    return choose_delivery(
        _recorded_delivery(config) or config.data.delivery,
        name=config.data.name,
        needed_bytes=_bytes_of_images(config) * (max(1, workers) if device.type == "cpu" else 1),
        free_bytes=free_bytes(device),
        workers=workers,
    )


def require_labels(config: ExperimentConfig, method_class: type[Method], images: Split | None) -> None:
    """Check, before Ray is used, that images have the labels that a method learns from.

    Datasets of the catalogue have labels; of other sources only the index is read, no image. With
    ``data.skip_corrupt``, only workers know which images are trained on, and check them.
    """
    if not requirements_of(config, method_class).labels:
        return
    if images is not None:
        classes_of(config, method_class, images.train.labels, images.train.class_names)
    elif location_of(config.data.name) is not None and not config.data.skip_corrupt:
        data = config.data
        source = open_source(data.name, "train", Reading.of(data))
        train, _, _ = rows_of_parts(source.index.keys, data.train_limit, data.holdout_rate, data.confirm_rate)
        classes_of(config, method_class, source.index.labels[train], source.class_names)


def _recorded_delivery(config: ExperimentConfig) -> Delivery | None:
    """Return the delivery with which the digest of the images was recorded, where the settings leave it open."""
    if config.data.delivery != "auto" or not config.data.digest:
        return None
    return "stream" if config.data.digest.startswith(STREAMED) else "resident"


def prepare_streamed(
    config: ExperimentConfig,
    device: torch.device,
    method_class: type[Method],
    ranks: Ranks,
    stream: Stream,
    shard: Any,
    step: int,
    weights: InitialWeights | None = None,
) -> Prepared:
    """Build everything that a worker needs to train on images from a stream, as ``prepare`` does for resident ones.

    Args:
        stream: The plan, and the images that selection needs in memory.
        shard: This worker's part of the stream, a ``ray.data.DataIterator``.
        step: Optimizer steps done before this launch.
    """
    from ebclab.data.delivery.ray_data.worker import StreamedData

    plan, batch_size = stream.plan, config.training.batch_size
    settings, channels_last = plan.settings, config.training.channels_last
    preprocessing = settings.preprocessing
    channels, size = stream.bank.images.shape[1], preprocessing.image_size
    labels = plan.train.labels, plan.source.class_names
    method, num_classes = method_for(config, method_class, *labels, channels, preprocessing, device, ranks, weights)
    _require_streamable(method, settings, batch_size)
    data = StreamedData(
        shard,
        settings,
        num_images=len(plan.train),
        first_epoch=step // max(1, len(plan.train) // batch_size),
        device=device,
        channels_last=channels_last,
        rank=ranks.rank,
        world_size=ranks.world_size,
    )
    of_bank = ViewSettings(config.views, preprocessing, config.seed, batch_size=1)
    bank = ResidentData(stream.bank, of_bank, device=device, channels_last=channels_last)
    counts = len(plan.train), len(stream.holdout), num_classes
    facts = DataFacts(channels, size, preprocessing.mean, preprocessing.std, plan.digest, *counts)
    training = build_training(config, method, data, (channels, size, size), device, ranks)
    return Prepared(
        training, bank.draw, stream.bank, stream.holdout, preprocessing, facts, stream.digest, replayable=False
    )


def _require_streamable(method: Method, settings: ViewSettings, batch_size: int) -> None:
    """Refuse a method that needs other batches than its class announced when the stream was planned."""
    with method_problems(type(method)):
        needed = method.num_views, method.num_proposals(batch_size)
    if needed != (settings.num_views, settings.num_proposals):
        raise ConfigError(
            f"data.delivery: a stream was planned for {settings.num_views} views and {settings.num_proposals} "
            f"proposals, got a method that needs {needed[0]} views and {needed[1]} proposals; let its class say so "
            "in `requirements`, or set data.delivery=resident"
        )


def _bytes_of_images(config: ExperimentConfig) -> int:
    name = config.data.name
    if location_of(name) is None:
        entry = dataset_named(name)
        return entry.num_images["train"] * math.prod(entry.shape)
    source = open_source(name, "train", Reading.of(config.data))
    return len(source.index) * math.prod(source.example.shape)
