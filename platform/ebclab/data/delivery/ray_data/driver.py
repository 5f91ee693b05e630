"""Prepares a stream on the driver: chooses the rows, reads the images that selection needs, finds damaged ones.

Tasks on the cluster do all work on images; the driver only opens the index.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import ray
import torch

from ebclab.config import ExperimentConfig
from ebclab.data.delivery.choose import require_batch, require_neighbouring_batch, require_neighbours
from ebclab.data.delivery.ray_data.pipeline import StreamPlan, usual_rows_per_block
from ebclab.data.delivery.ray_data.worker import user_error_in
from ebclab.data.holdout import limited, rows_of_parts
from ebclab.data.image_set import ImageSet, channel_statistics, require_digest, stream_digest
from ebclab.data.photograph import Decoded, Reading
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.sources.image_source import (
    ImageSource,
    RowIndex,
    Statistics,
    read_rows,
    report_skipped,
    set_of_rows,
    statistics_rows,
)
from ebclab.data.sources.load import open_source
from ebclab.data.views.pipeline import ViewSettings

_PART_BYTES = 64 << 20  # of decoded images that one task reads

_log = logging.getLogger("ebclab.data")


@dataclass(frozen=True)
class Stream:
    """A stream that is ready to be built, and the few images that selection needs in memory."""

    plan: StreamPlan
    bank: ImageSet  # training images, at most ``evaluation.knn_bank_limit``, that vote in the held-out kNN
    holdout: ImageSet  # images that the run is scored on, at most as many
    digest: str  # for the setting ``data.digest`` of the run


def plan_stream(config: ExperimentConfig, *, num_views: int, num_proposals: int = 0) -> Stream:
    """Return the stream that ``config`` describes; Ray must be running.

    Training and held-out rows are those of resident delivery. Images are decoded here only for the statistics (if none
    are stored with the dataset), for the bank and the held-out images and, with ``data.skip_corrupt``, once for all
    images to find damaged ones.
    """
    source = open_source(config.data.name, "train", Reading.of(config.data))
    source_ref = ray.put(source)
    statistics = source.statistics or _statistics(source_ref, source)
    everything = _sound_rows(source_ref, source) if config.data.skip_corrupt else source.index
    data = config.data
    rows = rows_of_parts(everything.keys, data.train_limit, data.holdout_rate, data.confirm_rate)
    train, holdout_rows, kept = map(everything.at, rows)
    confirm = [kept] if data.confirm_rate else []
    digest = stream_digest(
        *((part.keys, part.labels) for part in (train, holdout_rows, *confirm)),
        class_names=source.class_names,
        files_digest=source.files_digest,
    )
    require_digest(digest, config.data.digest, source.name)
    require_batch(len(train), config.training.batch_size)
    if num_proposals:
        require_neighbouring_batch(len(train), config.training.batch_size)
    scored = confirm[0] if confirm and config.evaluation.scored_on == "confirm" else holdout_rows
    require_neighbours(len(train), len(scored.keys), config.evaluation)
    count = config.evaluation.knn_bank_limit
    bank, holdout = (
        _load(source_ref, source, index.at(limited(index.keys, count)), statistics) for index in (train, scored)
    )
    settings = ViewSettings(
        config.views,
        preprocessing_for(config.views, bank),
        config.seed,
        config.training.batch_size,
        num_views,
        num_proposals,
        on_pipeline=config.data.views_on == "pipeline",
    )
    rows_per_block = usual_rows_per_block(len(train), source.image_bytes)
    return Stream(StreamPlan(source, train, settings, rows_per_block), bank, holdout, digest)


def _statistics(source_ref: Any, source: ImageSource) -> Statistics:
    chosen = source.index.at(statistics_rows(source.index.keys))
    return Statistics(*channel_statistics(_read(source_ref, source, chosen).images))


def _sound_rows(source_ref: Any, source: ImageSource) -> RowIndex:
    """Return the rows whose images can be decoded; the others are reported."""
    _log.info("%s: decoding all %s images once, to leave out damaged ones", source.name, f"{len(source.index):,}")
    decoded = _read(source_ref, source, source.index, keep_images=False)
    report_skipped(decoded.left_out, len(source.index))
    return source.index.at(decoded.good)


def _load(source_ref: Any, source: ImageSource, index: RowIndex, statistics: Statistics) -> ImageSet:
    return set_of_rows(source, index, _read(source_ref, source, index).images, statistics)


def _read(source_ref: Any, source: ImageSource, index: RowIndex, *, keep_images: bool = True) -> Decoded:
    rows_per_part = max(1, _PART_BYTES // source.image_bytes)
    parts = torch.split(torch.arange(len(index)), rows_per_part)
    try:
        read: list[Decoded] = ray.get(
            [_read_part.remote(source_ref, index.at(rows), keep_images) for rows in parts if len(rows)]
        )
    except ray.exceptions.RayTaskError as error:
        raise user_error_in(error) or error from error
    empty = torch.empty(0, *source.example.shape, dtype=torch.uint8)
    return Decoded(
        torch.cat([empty, *(part.images for part in read)]),
        torch.cat([torch.zeros(0, dtype=torch.bool), *(part.good for part in read)]),
        [image for part in read for image in part.left_out],
    )


@ray.remote
def _read_part(source: ImageSource, index: RowIndex, keep_images: bool) -> Decoded:
    torch.set_num_threads(1)
    decoded = read_rows(source, index)
    return decoded if keep_images else decoded._replace(images=decoded.images[:0])
