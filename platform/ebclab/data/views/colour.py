"""Colour jitter, grayscale and solarising in torchvision's float arithmetic, many images at a time.

All but solarising work in place.

Brightness, contrast and saturation are one operation: a blend with black, with the mean gray or with the own gray,
and a clamp to [0, 1]. Each image has them in its own order, with the hue shift somewhere among them. So the sequence
is three blends, the hue shift, three blends; each image skips the blends that it does on the other side. Images come
sorted by the place of their hue shift, so those that need a blend stand side by side.

Shapes: n images, P pixels an image. Planes are (C, n, P), channels outermost.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ebclab.data.preprocessing import constant
from ebclab.data.views.parameters import CONTRAST, HUE, SATURATION, ViewParameters

NUM_BLENDS = 3  # brightness, contrast, saturation
NO_JITTER = NUM_BLENDS + 1  # one more than the last place that a hue shift can have

SOLARISE_THRESHOLD = 128 / 255
"""Where inverting begins, in the image range [0, 1]; as for bytes in torchvision and Pillow."""

_GRAY_WEIGHTS = (0.2989, 0.587, 0.114)
_CHANNEL_HUES = (0.0, 2.0, -2.0)  # red, green, blue on a circle of circumference 6


class JitterPlan(NamedTuple):
    """Colour jitter of n images; blends are (n, 6): three before the hue shift, three after it."""

    keep: Tensor  # factors of the image's own pixels
    gray: Tensor  # factors of its gray
    mean: Tensor  # factors of its mean gray
    hue: Tensor  # (n,) shifts, turns
    hue_place: Tensor  # (n,) int64; as returned by `hue_places`


def hue_places(parameters: ViewParameters) -> Tensor:
    """Return how many blends come before the hue shift, 0 to 3, or `NO_JITTER` for images left alone (int64)."""
    factors = (parameters.brightness, parameters.contrast, parameters.saturation, 1 + parameters.hue)
    left_alone = torch.stack([factor == 1 for factor in factors]).all(0)
    return (parameters.order == HUE).int().argmax(-1).masked_fill(left_alone, NO_JITTER)


def plan_jitter(parameters: ViewParameters, *, rgb: bool) -> JitterPlan:
    """Return the plan for flat parameters, each field (n, ...); only RGB images have a saturation."""
    saturation = parameters.saturation if rgb else torch.ones_like(parameters.saturation)
    factors = torch.stack([parameters.brightness, parameters.contrast, saturation], 1)
    hue_place = (parameters.order == HUE).int().argmax(1, keepdim=True)
    place = torch.arange(NUM_BLENDS, device=factors.device)
    operation = parameters.order.gather(1, place + (place >= hue_place))  # (n, 3): the order without hue
    factor = factors.gather(1, operation)
    before = place < hue_place
    keep = torch.cat([torch.where(before, factor, 1), torch.where(before, 1, factor)], 1)  # (n, 6)
    gray, mean = ((1 - keep) * (operation == other).repeat(1, 2) for other in (SATURATION, CONTRAST))
    return JitterPlan(keep, gray, mean, parameters.hue, hue_places(parameters))


def jitter_colour(planes: Tensor, plan: JitterPlan, *, shifts_hue: bool) -> None:
    """Apply a plan that is sorted by hue place to planes (C, n, P) in [0, 1], in place.

    Only RGB images have a hue, which is shifted if ``shifts_hue``.
    """
    before, jittered, after = _involved(plan.hue_place)
    _blend_in_turn(planes, plan, before, first=0)
    if shifts_hue and planes.shape[0] == 3:
        shift_hue(planes[:, jittered], plan.hue[jittered])
    _blend_in_turn(planes, plan, after, first=NUM_BLENDS)


def shift_hue(planes: Tensor, turns: Tensor) -> None:
    """Turn the hue of RGB planes (3, n, P) in [0, 1] in place, by ``turns`` (n,) from -1/2 to 1/2.

    Hue is a place on a circle of circumference 6. With the pixel's least channel m and chroma c, its distance from
    red is 1 + (G + B - R - m) / c, on green's side where G >= B. A channel at distance d from the shifted hue
    becomes m + c clamp(2 - d, 0, 1). (The usual HSV formulas choose between cases, which is slow in batches.)
    """
    red, green, blue = planes.unbind()
    lowest = torch.minimum(red, green)
    torch.minimum(lowest, blue, out=lowest)
    chroma = torch.maximum(red, green)
    torch.maximum(chroma, blue, out=chroma).sub_(lowest)
    side = green - blue
    hue = (green + blue).sub_(red).sub_(lowest).div_(chroma.clamp_min(1e-12))  # where chroma is 0 any hue is right
    hue.add_(1).copysign_(side).add_((6 * turns)[:, None])
    hue.sub_(torch.mul(hue, 1 / 6, out=side).round_().mul_(6))  # back into [-3, 3]
    torch.sub(hue, constant(_CHANNEL_HUES, planes.dtype, planes.device)[:, None, None], out=planes)  # [-5, 5]
    planes.abs_().sub_(3).abs_().clamp_(1, 2)  # 3 - d, cut to [1, 2]
    torch.addcmul(lowest.sub_(chroma), planes, chroma, out=planes)


def drop_colour(planes: Tensor, chosen: Tensor) -> None:
    """Replace the ``chosen`` ((n,) bool) images of (3, n, P) planes by their gray, in place."""
    if chosen.is_cpu and not chosen.any():  # on a device, looking would stall it
        return
    keep = (~chosen).float()[:, None]
    torch.addcmul(gray_of(planes).mul_(1 - keep), planes, keep, out=planes)


def solarise(planes: Tensor, chosen: Tensor) -> Tensor:
    """Return planes (C, n, P) in which the ``chosen`` ((n,) bool) images have numbers from 128 / 255 on inverted."""
    return torch.where(chosen[:, None] & (planes >= SOLARISE_THRESHOLD), 1 - planes, planes)


def _involved(hue_place: Tensor) -> tuple[list[slice], slice, list[slice]]:
    """Return who takes part in each blend before the hue shift, in the shift, and in each blend after it.

    The places (n,) are sorted. On a device, where looking at them would stall it, all images take part in everything:
    factors of 1 and shifts of 0 change them by no more than rounding.
    """
    if not hue_place.is_cpu:
        everyone = slice(0, len(hue_place))
        return [everyone] * NUM_BLENDS, everyone, [everyone] * NUM_BLENDS
    *edges, end = torch.searchsorted(hue_place, torch.arange(1, NO_JITTER + 1)).tolist()
    return [slice(edge, end) for edge in edges], slice(0, end), [slice(0, edge) for edge in edges]


def _blend_in_turn(planes: Tensor, plan: JitterPlan, turns: list[slice], *, first: int) -> None:
    """Apply one blend of the plan after the other, from the ``first`` on, each to its own images, in place."""
    for blend, images in enumerate(turns, start=first):
        if images.start < images.stop:
            _blend(planes[:, images], *(field[images, blend, None] for field in (plan.keep, plan.gray, plan.mean)))


def _blend(planes: Tensor, keep: Tensor, gray: Tensor, mean: Tensor) -> None:
    """Set planes to clamp(keep * planes + gray * their gray + mean * their mean gray, 0, 1), in place."""
    target = gray_of(planes)
    level = target.mean(1, keepdim=True).mul_(mean)
    target.mul_(gray).add_(level)
    torch.addcmul(target, planes, keep, out=planes).clamp_(0, 1)


def gray_of(planes: Tensor) -> Tensor:
    """Return a fresh luminance (...) of RGB planes (3, ...), or the mean of other planes (C, ...)."""
    if planes.shape[0] != 3:
        return planes.mean(0)
    red, green, blue = planes.unbind()
    return (red * _GRAY_WEIGHTS[0]).add_(green, alpha=_GRAY_WEIGHTS[1]).add_(blue, alpha=_GRAY_WEIGHTS[2])
