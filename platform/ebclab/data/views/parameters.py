"""The random parameters of views, drawn per image and per view.

Every number is a hash of (seed, epoch, sample key, view number, slot), so an image gets the same view in any batch,
order, process or device. Images that share a draw have a common word in place of the sample key; each image still has
pixel noise of its own.

Shapes: V views, B images.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words, unit_interval
from ebclab.data.preprocessing import constant

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # torchvision's numbers

_STREAM = 0x7669657773  # sets these hashes apart from other uses of the same seed and keys
_SHARED_STREAM = 0x736861726564
_BATCH_SALT = 0x6261746368  # sets the words of batches and of chunks apart
_CHUNK_SALT = 0x6368756E6B
_DRAWN_TOGETHER = 256  # images of a fresh draw that share a word, as when EBCLR's released code fills its buffer
_NOISE_SLOT = -1
_SLOTS = (
    *("flip", "jitter", "order", "brightness", "contrast", "saturation", "hue"),
    *("grayscale", "blur", "blur_sigma", "crop_top", "crop_left"),
)
_CROP_TRIES = 10
_SOLARISE_SLOT = len(_SLOTS) + 2 * _CROP_TRIES
_NUM_SLOTS = _SOLARISE_SLOT + 1  # a new slot comes last, or every run that exists would get other views
_JITTER_ORDERS = tuple(itertools.permutations((BRIGHTNESS, CONTRAST, SATURATION, HUE)))


class ViewParameters(NamedTuple):
    """The random parameters of views; every tensor is (V, B) unless said otherwise."""

    top: Tensor  # int64; first row of the crop box, pixels
    left: Tensor  # int64; first column of the crop box, pixels
    height: Tensor  # int64; rows of the crop box, pixels
    width: Tensor  # int64; columns of the crop box, pixels
    flip: Tensor  # bool; mirror left and right
    order: Tensor  # (V, B, 4) int64; the colour operations (BRIGHTNESS, CONTRAST, SATURATION, HUE) in the order applied
    brightness: Tensor  # float32 factor; 1 leaves the image alone
    contrast: Tensor  # float32 factor; 1 leaves the image alone
    saturation: Tensor  # float32 factor; 1 leaves the image alone
    hue: Tensor  # float32 shift in turns, from -1/2 to 1/2; 0 leaves the image alone
    grayscale: Tensor  # bool; drop colour
    blur_sigma: Tensor  # float32 standard deviation, pixels; 0 leaves the image alone
    solarise: Tensor  # bool; invert the pixels that are not dark
    noise_word: Tensor  # int64; the word that names the pixel noise


def draw_parameters(
    keys: Tensor,
    config: ViewsConfig,
    height: int,
    width: int,
    *,
    seed: int,
    epoch: int,
    views: range,
    shared: Tensor | None = None,
) -> ViewParameters:
    """Draw the parameters of the numbered views of images of ``height`` x ``width`` pixels with ``keys`` (B,).

    Images of the same word of ``shared`` (B,) int64 share a draw; None when none do.
    """
    numbers = torch.arange(views.start, views.stop, device=keys.device)[:, None, None]  # (V, 1, 1)
    slots = torch.arange(_NOISE_SLOT, _NUM_SLOTS, device=keys.device)
    if shared is None:
        bits = hash_words(_STREAM, seed, epoch, keys[:, None], numbers, slots)  # (V, B, slots)
        noise_word = bits[..., 0]
    else:
        bits = hash_words(_SHARED_STREAM, seed, epoch, shared[:, None], numbers, slots)
        noise_word = hash_words(_STREAM, seed, epoch, keys, numbers[..., 0], _NOISE_SLOT)
    uniform = unit_interval(bits[..., 1:])
    draw = dict(zip(_SLOTS, uniform.unbind(-1), strict=False))
    orders = constant(_JITTER_ORDERS, torch.int64, keys.device)
    jitter = draw["jitter"] < config.jitter_rate
    sigma = _between(draw["blur_sigma"], config.blur_sigma_min, config.blur_sigma_max)
    blur_rates, solarise_rates = (
        constant(tuple(rates[view % 2] for view in views), torch.float64, keys.device)[:, None]
        for rates in (config.blur_rates, config.solarise_rates)
    )
    tries = uniform[..., len(_SLOTS) : _SOLARISE_SLOT]
    drawn = ViewParameters(
        *_draw_boxes(tries, draw["crop_top"], draw["crop_left"], config, height, width),
        flip=draw["flip"] < config.flip_rate,
        order=orders[(draw["order"] * len(orders)).long()],
        brightness=_factors(draw["brightness"], config.brightness, jitter),
        contrast=_factors(draw["contrast"], config.contrast, jitter),
        saturation=_factors(draw["saturation"], config.saturation, jitter),
        hue=(_between(draw["hue"], -config.hue, config.hue) * jitter).float(),
        grayscale=draw["grayscale"] < config.grayscale_rate,
        blur_sigma=(sigma * (draw["blur"] < blur_rates)).float(),
        solarise=uniform[..., _SOLARISE_SLOT] < solarise_rates,
        noise_word=noise_word,
    )
    return _with_plain_second_views(drawn, views, height, width) if config.second_plain else drawn


def _with_plain_second_views(drawn: ViewParameters, views: range, height: int, width: int) -> ViewParameters:
    """Return the parameters, of which those of every second view leave the image alone, except for its noise."""
    second = constant(tuple(view % 2 == 1 for view in views), torch.bool, drawn.top.device)[:, None]  # (V, 1)
    left_alone = {
        **{"top": 0, "left": 0, "height": height, "width": width, "flip": False, "hue": 0.0},
        **{"brightness": 1.0, "contrast": 1.0, "saturation": 1.0},
        **{"grayscale": False, "blur_sigma": 0.0, "solarise": False},
    }
    return drawn._replace(
        **{name: getattr(drawn, name).masked_fill(second, value) for name, value in left_alone.items()}
    )


def _draw_boxes(
    tries: Tensor, place_top: Tensor, place_left: Tensor, config: ViewsConfig, height: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return top, left, height and width of crop boxes distributed as torchvision's RandomResizedCrop draws them.

    The first of ten pairs of area and aspect ratio whose box fits the image is taken, else the largest central box
    of an allowed ratio. The numbers are in [0, 1): ten areas, then ten ratios, (V, B, 20), and two places (V, B).
    """
    if config.crop_scale_min == config.crop_scale_max == 1.0:
        zero = torch.zeros_like(place_top, dtype=torch.int64)
        return zero, zero, zero + height, zero + width
    area = _between(tries[..., :_CROP_TRIES], config.crop_scale_min, config.crop_scale_max) * (height * width)
    low, high = math.log(config.crop_ratio_min), math.log(config.crop_ratio_max)
    ratio = _between(tries[..., _CROP_TRIES:], low, high).exp()
    widths, heights = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()  # round half to even, like Python
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = fits.int().argmax(-1, keepdim=True)
    has_fit = fits.any(-1)
    central_height, central_width = _central_box(config, height, width)
    box_height = torch.where(has_fit, heights.gather(-1, first)[..., 0], central_height)
    box_width = torch.where(has_fit, widths.gather(-1, first)[..., 0], central_width)
    room_down, room_right = height - box_height, width - box_width
    top = torch.where(has_fit, place_top * (room_down + 1), room_down / 2)
    left = torch.where(has_fit, place_left * (room_right + 1), room_right / 2)
    return top.long(), left.long(), box_height.long(), box_width.long()


def _central_box(config: ViewsConfig, height: int, width: int) -> tuple[int, int]:
    """Return height and width of the largest box of an allowed aspect ratio."""
    if width / height < config.crop_ratio_min:
        return round(width / config.crop_ratio_min), width
    if width / height > config.crop_ratio_max:
        return height, round(height * config.crop_ratio_max)
    return height, width


def _factors(uniform: Tensor, spread: float, chosen: Tensor) -> Tensor:
    """Return factors uniform around 1 -/+ ``spread`` where ``chosen``, else 1; never below 0."""
    return torch.where(chosen, _between(uniform, max(0.0, 1 - spread), 1 + spread), 1.0).float()


def _between(uniform: Tensor, low: float, high: float) -> Tensor:
    return uniform * (high - low) + low


def words_of_batch(config: ViewsConfig, rows: Tensor, *, position: int, batch_size: int) -> Tensor | None:
    """Return a word (B,) int64 for each image of a batch; images of the same word share the parameters of their views.

    None when no two images share anything. Words do not depend on ranks: an image, known by its row (B,) of the
    training set, gets the same word on any rank.
    """
    if config.shared_by == "image":
        return None
    if config.shared_by == "batch":
        return rows.new_full(rows.shape, int(hash_words(_BATCH_SALT, position)))
    return hash_words(_CHUNK_SALT, rows // batch_size)


def words_of_draw(config: ViewsConfig, keys: Tensor) -> Tensor | None:
    """Return words (B,) for images that were drawn at random with ``keys`` (B,) of their own: 256 at a time share one.

    None when no two images share anything.
    """
    if config.shared_by == "image":
        return None
    first = torch.arange(len(keys), device=keys.device) // _DRAWN_TOGETHER * _DRAWN_TOGETHER
    return keys[first]
