"""Decides how images reach the training loop, resident or streamed; pure functions of plain values."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ebclab.config.addresses import LOCATIONS, PARQUET
from ebclab.config.sections import EvaluationConfig
from ebclab.errors import DataError, UserError
from ebclab.formatting import size

Delivery = Literal["resident", "stream"]

RESIDENT_SHARE = 0.5
"""Share of a device's free memory that resident images may take; the rest is for the network and the views."""


class Choice(NamedTuple):
    """A delivery and the reason for it, in one sentence."""

    delivery: Delivery
    reason: str


def choose_delivery(
    asked: Literal["auto", "resident", "stream"],
    *,
    name: str,
    needed_bytes: int,
    free_bytes: int,
    workers: int,
) -> Choice:
    """Return how a dataset is delivered.

    Args:
        asked: The setting ``data.delivery``.
        needed_bytes: Bytes of all images in memory, counting every copy on the device.
        workers: Ray Train workers; 0 means a run in one process without Ray.
    """
    if asked == "stream":
        if obstacle := _obstacle(name, workers):
            raise DataError(f"data.delivery: {obstacle}")
        return Choice("stream", "images streamed: as set")
    if asked == "resident":
        return Choice("resident", "images in memory: as set")
    sizes = f"{size(needed_bytes)}, {size(free_bytes)} free"
    if needed_bytes <= RESIDENT_SHARE * free_bytes:
        return Choice("resident", f"images in memory: they fit ({sizes})")
    if obstacle := _obstacle(name, workers):
        if needed_bytes > free_bytes:
            raise DataError(f"data.delivery: the set does not fit in memory ({sizes}), and {obstacle}")
        return Choice("resident", f"images in memory: they are many ({sizes}), but {obstacle}")
    return Choice("stream", f"images streamed: they are too many ({sizes})")


def require_batch(num_images: int, batch_size: int, world_size: int = 1) -> None:
    """Refuse a batch that is larger than the training set, or that ranks cannot share evenly."""
    if num_images < 2:
        raise DataError(
            f"data: at least 2 training images are needed, got {num_images}; "
            "data.holdout_rate and data.train_limit make the set smaller"
        )
    if batch_size > num_images:
        raise DataError(
            f"training.batch_size: larger than the training set, got {batch_size} for {num_images} images; "
            f"use at most {num_images} (data.holdout_rate and data.train_limit make the set smaller)"
        )
    if batch_size % world_size:
        raise UserError(
            f"training.batch_size: must split evenly over {world_size} workers, got {batch_size}; change either number"
        )


def require_neighbours(num_images: int, num_scored: int, evaluation: EvaluationConfig) -> None:
    """Refuse more neighbours than there are training images that vote for the held-out images that there are."""
    voting = min(num_images, evaluation.knn_bank_limit or num_images)
    if num_scored and evaluation.knn_every and evaluation.knn_neighbours > voting:
        raise DataError(
            f"evaluation.knn_neighbours: more than the {voting:,} training images that vote, got "
            f"{evaluation.knn_neighbours:,}; use at most {voting:,}, or score nothing (evaluation.knn_every=0)"
        )


def require_neighbouring_batch(num_images: int, batch_size: int) -> None:
    """Refuse a streamed set of a single batch for a method that takes proposals from another one (DataError)."""
    if num_images < 2 * batch_size:
        raise DataError(
            f"data.delivery: a stream takes this method's views of other images from the batch before, got "
            f"{num_images} images for batches of {batch_size}; set training.batch_size to {num_images // 2} or less, "
            "or data.delivery=resident"
        )


def _obstacle(name: str, workers: int) -> str:
    """Return why a dataset cannot be streamed; empty when it can."""
    if not name.startswith(LOCATIONS):
        return (
            f"a dataset of the catalogue is not streamed from its own files, got {name}; "
            f"run `ebclab data prepare {name} --to DIR` and set data.name={PARQUET}DIR"
        )
    if workers == 0:
        return "a stream needs Ray, got resources.workers=0; set resources.workers to 1 or more"
    return ""
