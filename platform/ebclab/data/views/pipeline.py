"""From stored images to views: draw all parameters, then apply them chunk by chunk.

A job is one view of one image. Jobs are sorted by the place of their hue shift and by grayscale, so that a chunk needs
few of the colour operations; a chunk is small enough to stay in a core's cache through all of them. Large images have a
way of their own on a CPU (`large.py`).

``ViewSettings`` makes the views of a run, the same in memory and in a stream. Proposals are fresh views of training
images outside the batch, from which chains of samples restart. A slot is the number of a proposal within the global
batch; ranks share the slots as ``torch.tensor_split`` does.

Shapes: V views, B images, J = V * B jobs, n jobs of a chunk, C channels, H x W source pixels, size x size view pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words, standard_normal
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.colour import JitterPlan, drop_colour, hue_places, jitter_colour, plan_jitter, solarise
from ebclab.data.views.geometry import ResizeLine, blur, plan_line, resample
from ebclab.data.views.large import are_large, make_large_views
from ebclab.data.views.parameters import ViewParameters, draw_parameters, words_of_batch

_CHUNK_NUMBERS_CPU = 96 * 3 * 32 * 32  # 1.1 MiB of float32
_CHUNK_NUMBERS_DEVICE = 1 << 27  # 512 MiB: few launches


class _Jobs(NamedTuple):
    """What is done to each job of a sorted set; every tensor has the jobs along its first dimension."""

    place: Tensor  # int64; row in the (J, ...) result
    image: Tensor  # int64; row in the images
    rows: ResizeLine
    columns: ResizeLine
    jitter: JitterPlan
    parameters: ViewParameters

    def part(self, jobs: slice) -> _Jobs:
        whole: Any = self
        plans = (plan._make(field[jobs] for field in plan) for plan in whole[2:])
        return _Jobs(self.place[jobs], self.image[jobs], *plans)


def make_views(
    images: Tensor,
    keys: Tensor,
    config: ViewsConfig,
    preprocessing: Preprocessing,
    *,
    seed: int,
    epoch: int,
    num_views: int = 2,
    channels_last: bool = False,
    shared: Tensor | None = None,
) -> Tensor:
    """Return (V, B, C, size, size) float32 normalised views; each depends on its image, key, word and number alone.

    Images (B, C, H, W) uint8 and their keys (B,) are on any device.

    Args:
        channels_last: Lay out ``result.flatten(0, 1)`` as a channels-last batch.
        shared: (B,) int64 words of images that share a draw with those of the same word; None when none do.
    """
    height, width = images.shape[-2:]
    views = range(num_views)
    parameters = draw_parameters(keys, config, height, width, seed=seed, epoch=epoch, views=views, shared=shared)
    return apply_parameters(images, parameters, config, preprocessing, channels_last=channels_last)


def apply_parameters(
    images: Tensor,
    parameters: ViewParameters,
    config: ViewsConfig,
    preprocessing: Preprocessing,
    *,
    channels_last: bool = False,
    chunk_size: int = 0,
) -> Tensor:
    """Return the (V, B, C, size, size) float32 views of images (B, C, H, W) uint8 that ``parameters`` describe.

    Args:
        channels_last: Lay out ``result.flatten(0, 1)`` as a channels-last batch.
        chunk_size: Views made at a time; 0 means as many as suit the device. Large images know no chunks.
    """
    num_views, num_images = parameters.flip.shape
    channels, height, width = images.shape[1:]
    size = preprocessing.image_size
    layout = (size * size, channels) if channels_last else (channels, size * size)
    result = torch.empty(num_views * num_images, *layout, device=images.device)
    if images.is_cpu and are_large(height, width, size):
        planes = result.transpose(1, 2) if channels_last else result
        make_large_views(images, parameters, config, preprocessing, planes)
        return planes.view(num_views, num_images, channels, size, size)
    budget = _CHUNK_NUMBERS_CPU if images.is_cpu else _CHUNK_NUMBERS_DEVICE
    chunk_size = chunk_size or max(1, budget // (channels * max(height * width, size * size)))
    every = _plan(images, parameters, size)
    for first in range(0, num_views * num_images, chunk_size):
        jobs = every.part(slice(first, first + chunk_size))
        planes = _make_planes(images, jobs, config, preprocessing)  # (C, n, pixels)
        views = planes.permute(1, 2, 0).contiguous() if channels_last else planes.transpose(0, 1)
        result.index_copy_(0, jobs.place, views)
    if channels_last:
        result = result.transpose(1, 2)
    return result.view(num_views, num_images, channels, size, size)


def _plan(images: Tensor, parameters: ViewParameters, size: int) -> _Jobs:
    _, channels, height, width = images.shape
    flat = ViewParameters._make(field.flatten(0, 1) for field in parameters)
    place = (2 * hue_places(flat) + flat.grayscale).argsort(stable=True)
    flat = ViewParameters._make(field.index_select(0, place) for field in flat)
    return _Jobs(
        place,
        place % images.shape[0],
        plan_line(flat.top, flat.height, None, height, size),
        plan_line(flat.left, flat.width, flat.flip, width, size),
        plan_jitter(flat, rgb=channels == 3),
        flat,
    )


def _make_planes(images: Tensor, jobs: _Jobs, config: ViewsConfig, preprocessing: Preprocessing) -> Tensor:
    """Return (C, n, pixels) normalised planes of some jobs."""
    source = images.index_select(0, jobs.image).float()  # (n, C, H, W) in [0, 255]
    rows, columns = jobs.rows.weights(total=1 / 255), jobs.columns.weights(total=1)
    square = resample(rows.transpose(1, 2), source, columns)  # (C, n, size, size) in [0, 1]
    planes = square.flatten(2)
    if config.jitter_rate > 0:
        jitter_colour(planes, jobs.jitter, shifts_hue=config.hue > 0)
    if config.grayscale_rate > 0 and planes.shape[0] == 3:
        drop_colour(planes, jobs.parameters.grayscale)
    if any(config.blur_rates):
        planes = blur(square, jobs.parameters.blur_sigma, config.blur_kernel_size).flatten(2)
    if any(config.solarise_rates):
        planes = solarise(planes, jobs.parameters.solarise)
    if config.noise_std > 0:
        noise = standard_normal(jobs.parameters.noise_word, planes[:, 0].numel())
        planes.add_(noise.view_as(planes.transpose(0, 1)).transpose(0, 1), alpha=config.noise_std)
    mean, std = preprocessing.columns(planes.device)
    return planes.sub_(mean[:, None]).mul_(1 / std[:, None])


CHOICE_SALT = 0x63686F696365
"""First word of the hashes that choose the images of proposals."""

_FRESH_SALT = 0x6672657368


@dataclass(frozen=True)
class ViewSettings:
    """The settings on which the views of a run depend."""

    views: ViewsConfig
    preprocessing: Preprocessing  # size and normalisation of the views
    seed: int
    batch_size: int  # images of a global batch; an incomplete last batch is dropped
    num_views: int = 2  # of each image
    num_proposals: int = 0  # that come with each global batch
    on_pipeline: bool = False  # views of a stream are made in Ray Data's tasks, not in the worker

    def views_of(
        self, images: Tensor, keys: Tensor, rows: Tensor, *, epoch: int, position: int, channels_last: bool = False
    ) -> Tensor:
        """Return the views (V, B, C, h, w) of those images (B, C, H, W) of one batch that have ``keys`` (B,).

        ``rows`` (B,) are their rows in the training set, and ``position`` is the number of the batch within the epoch.
        """
        shared = words_of_batch(self.views, rows, position=position, batch_size=self.batch_size)
        return self.make(images, keys, epoch, self.num_views, shared, channels_last)

    def fresh_views(
        self, images: Tensor, keys: Tensor, slots: Tensor, *, epoch: int, step: int, channels_last: bool
    ) -> Tensor:
        """Return one view (P, C, h, w) of each image, unlike its views in the epoch and in other ``slots`` (P,).

        ``step`` is the number of the batch since the start of the run.
        """
        fresh = hash_words(_FRESH_SALT, step, slots, keys)
        word = None if self.views.shared_by == "image" else int(hash_words(_FRESH_SALT, step))
        shared = None if word is None else fresh.new_full(fresh.shape, word)
        return self.make(images, fresh, epoch, 1, shared, channels_last)[0]

    def make(
        self, images: Tensor, keys: Tensor, epoch: int, num_views: int, shared: Tensor | None, channels_last: bool
    ) -> Tensor:
        """Return views as ``make_views`` does."""
        return make_views(
            images,
            keys,
            self.views,
            self.preprocessing,
            seed=self.seed,
            epoch=epoch,
            num_views=num_views,
            channels_last=channels_last,
            shared=shared,
        )


def own_slots(count: int, rank: int, world_size: int, device: torch.device) -> Tensor:
    """Return the slots (P,) of this rank out of ``count`` for the global batch; P may differ between ranks by one."""
    return torch.arange(count, device=device).tensor_split(world_size)[rank]
