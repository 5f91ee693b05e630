"""Images of a run's own dataset, for the comparison of an encoder with its exported file."""

from __future__ import annotations

import logging

from torch import Tensor

from ebclab.config import ExperimentConfig
from ebclab.data.digests import require_digest
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.image_source import read_rows, statistics_rows
from ebclab.data.sources.load import open_source
from ebclab.data.sources.location import location_of
from ebclab.errors import DataError
from ebclab.export.formats import Comparison
from ebclab.training.setup import load_images

LIMIT = 64
"""Maximum number of images for the comparison."""

_log = logging.getLogger("ebclab.export")


def comparison_for(config: ExperimentConfig, in_channels: int) -> Comparison | None:
    """Return images of the dataset that ``config`` names; None if it is not available or does not fit.

    For a dataset of the catalogue: held-out images, or training images if fewer than two are held out. For a dataset
    given by its location: training images, chosen by hash.

    Args:
        in_channels: Input channels of its encoder.
    """
    try:
        images, kind = _read(config)
    except DataError as error:
        _log.warning("comparing on noise: %s", error)
        return None
    if len(images) < 2 or images.shape[1] != in_channels:  # the run was trained on images passed by its caller
        return None
    return Comparison(images, f"{len(images)} {kind} images of {config.data.name}")


def _read(config: ExperimentConfig) -> tuple[Tensor, str]:
    name, reading = config.data.name, Reading.of(config.data)
    if location_of(name) is not None:
        source = open_source(name, "train", reading)
        return read_rows(source, source.index.at(statistics_rows(source.index.keys)[:LIMIT])).images, "training"
    split = load_images(config)
    require_digest(split.content, config.data.digest, name)
    chosen, kind = (split.holdout, "held-out") if len(split.holdout) > 1 else (split.train, "training")
    return chosen.images[:LIMIT], kind
