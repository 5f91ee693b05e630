"""Chooses settings for the user's image files, of which nothing else is known, by the sizes of a sample of them.

docs/data.md states the rule. The choice has lower precedence than anything the user sets, and is written into the run's
settings like anything else, so that equal settings still mean equal runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebclab.config.addresses import with_absolute_path
from ebclab.config.experiment import flat
from ebclab.config.recipes import merge, read_overrides
from ebclab.config.sections import VIEW_RECIPES, DataConfig, EvaluationConfig, TrainingConfig, fitting_views
from ebclab.config.yaml_text import Plain
from ebclab.data.hashing import hash_words
from ebclab.data.holdout import rows_of_parts
from ebclab.data.photograph import Reading
from ebclab.data.sources.image_source import ImageSource
from ebclab.data.sources.load import open_source
from ebclab.data.sources.location import location_of
from ebclab.formatting import count

SAMPLED = 256
"""Largest number of images whose sizes are read."""
LARGEST_SIDE = 224
"""Side, pixels, to which larger images are scaled."""
KEPT_SIDE = 256
"""Square images that all have one size up to this side, pixels, are not resized."""

_SALT = 0x73697A6573  # names this use of the keys
_WHOLE_PARTS = 32  # pixels; strided networks halve such sides without a remainder
_SMALL_VIEWS, _MIDDLE_VIEWS = 32, 64  # pixels
_FEWEST_STEPS = 4  # an epoch
_SMALLEST_BATCH = 8
_FEWEST_TRAINED = 2  # images, which a batch compares

_log = logging.getLogger("ebclab.data")


class SampledSizes(NamedTuple):
    """Sizes of a sample of images."""

    num_images: int  # images of the training set
    channels: int  # channels with which they are read
    sizes: list[tuple[int, int]]  # width and height of each image of the sample, pixels, upright
    stored: bool  # whether they are stored as arrays of pixels, which keep their size

    @property
    def sides(self) -> list[int]:
        return sorted(map(min, self.sizes))

    def in_words(self) -> str:
        """Return a description of the sample for users."""
        low, high = self.sides[0], self.sides[-1]
        shorter = count(low, "pixel") if low == high else f"{low} to {high} pixels"
        among = f" ({len(self.sizes)} looked at)" if 1 < len(self.sizes) < self.num_images else ""
        return f"{count(self.num_images, 'image')} of {shorter} on their shorter side{among}"


def fitted(mapping: Mapping[str, Any], say: Callable[[str], None] = _log.warning) -> Plain:
    """Return settings completed with choices that suit the images, if these are named by their location.

    The mapping has the plain values of all layers of settings, from ``compose``; what was chosen is said in one line.
    """
    settings = _by_key(mapping)
    name = settings.get("data.name")
    if not isinstance(name, str) or location_of(name) is None or {"views.recipe", "data.resize"} <= settings.keys():
        return dict(mapping)
    source = open_source(with_absolute_path(name), "train", _reading(settings))  # as the run: warnings name it, once
    sample = look(source)
    chosen = choose(sample, settings, _trained_on(source.index.keys, settings))
    if not chosen:
        return dict(mapping)
    words = ", ".join(f"{key}={value}" for key, value in chosen.items())
    say(f"{sample.in_words()}; chosen for them: {words}; --set changes any of it")
    if "views.recipe" in chosen:  # drop auto, which would count as the user's choice
        views = {key: value for key, value in (mapping.get("views") or {}).items() if key != "recipe"}
        mapping = {**mapping, "views": views}
    return merge(read_overrides(chosen)[0], mapping)


def look(source: ImageSource) -> SampledSizes:
    """Return the sizes of training images of a dataset, from a sample chosen by hash."""
    keys = source.index.keys
    rows = torch.argsort(hash_words(_SALT, keys), stable=True)[:SAMPLED]
    channels, height, width = source.example.shape
    sizes = source.sizes(rows)
    return SampledSizes(len(keys), channels, sizes or [(width, height)], not sizes)


def choose(sample: SampledSizes, settings: Mapping[str, Any], trained_on: int | None = None) -> Plain:
    """Return settings by dotted key that suit images, except those that the user chose.

    If the user's choices include views, at most ``data.resize`` is added. ``trained_on`` is the number of images that
    are not held out; None means all.
    """
    own_views = "views.recipe" in settings
    resize = settings.get("data.resize") or _resize(sample, own_views=own_views)
    chosen: Plain = {"data.resize": resize} if resize else {}
    if not own_views:
        side = resize or min(sample.sizes[0])
        views = _by_key(read_overrides(fitting_views(sample.channels, side, side))[0])
        usual = VIEW_RECIPES[views["views.recipe"]].settings.get("image_size") or side
        size = settings.get("views.image_size") or views.get("views.image_size") or usual
        chosen |= views | ({} if settings.get("init.weights") or "encoder.name" in settings else _encoder(size))
        used = min(sample.num_images, _limit(settings) or sample.num_images)
        left = used if trained_on is None else trained_on
        if left < _FEWEST_TRAINED <= used and "data.holdout_rate" not in settings:
            chosen["data.holdout_rate"], left = 0.0, used  # the hash of a key holds an image out, of however few
        batch_size = fitting_batch(used, left)
        chosen |= {"training.batch_size": batch_size} if batch_size < TrainingConfig.batch_size else {}
        chosen |= _neighbours(used)
    return {key: value for key, value in chosen.items() if key not in settings}


def _resize(sample: SampledSizes, *, own_views: bool) -> int:
    """Return the side that images must be scaled to, pixels; 0 if they need not be scaled."""
    width, height = sample.sizes[0]
    one_size = len(set(sample.sizes)) == 1
    if sample.stored or (one_size and (own_views or width == height <= KEPT_SIDE)):
        return 0
    side = min(sample.sides[len(sample.sides) // 10], LARGEST_SIDE)  # nine images of ten are at least so large
    return side if side < _WHOLE_PARTS else side - side % _WHOLE_PARTS


def _encoder(size: object) -> dict[str, str]:
    if not isinstance(size, int) or size <= _SMALL_VIEWS:
        return {"encoder.name": "small"}
    return {"encoder.name": "resnet18", "encoder.stem": "cifar" if size <= _MIDDLE_VIEWS else "imagenet"}


def _limit(settings: Mapping[str, Any]) -> int:
    limit = settings.get("data.train_limit")
    return limit if isinstance(limit, int) and limit > 0 else 0


def _trained_on(keys: Tensor, settings: Mapping[str, Any]) -> int:
    """Return how many images with these keys (n,) are not held out."""
    rates = (settings.get(f"data.{name}", getattr(DataConfig, name)) for name in ("holdout_rate", "confirm_rate"))
    held, kept = (float(rate) if isinstance(rate, int | float) else 0.0 for rate in rates)
    return len(rows_of_parts(keys, _limit(settings), held, kept)[0])


def fitting_batch(count: int, trained_on: int) -> int:
    """Return a batch size, a power of two: up to a quarter of the images, or 8 if so many are trained on."""
    largest = max(_FEWEST_TRAINED, min(max(_SMALLEST_BATCH, count // _FEWEST_STEPS), trained_on))
    return 1 << (largest.bit_length() - 1)


def _neighbours(count: int) -> dict[str, int]:
    """Return fewer neighbours, half the images, if those that are not held out may be fewer than vote by default."""
    return {"evaluation.knn_neighbours": max(1, count // 2)} if count < 2 * EvaluationConfig.knn_neighbours else {}


def _reading(settings: Mapping[str, Any]) -> Reading:
    """Return how images are read according to the user's choices; damaged ones are skipped, since this only looks."""
    words = ("colour", "image_column", "label_column", "labels")
    known = {word: value for word in words if isinstance(value := settings.get(f"data.{word}"), str)}
    return Reading(skip_corrupt=True, **known)  # type: ignore[arg-type]


def _by_key(mapping: Mapping[str, Any]) -> Plain:
    """Return the settings of all sections by dotted key, without ``views.recipe: auto``, which chooses nothing."""
    return {key: value for key, value in flat(mapping).items() if (key, value) != ("views.recipe", "auto")}
