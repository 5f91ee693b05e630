"""Image grid of chains: one row per chain, with its image and energy at each recorded step."""

from __future__ import annotations

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from ebclab.evaluation.samples import levels
from energy_contrast.method import PixelRange
from energy_contrast.sampling_method import ChainTrace

_SIDE = 96  # minimum side of a drawn image, in pixels
_GAP = 12
_TEXT = 18  # height of a line of text, in pixels


def draw_chains(trace: ChainTrace, pixel_range: PixelRange) -> Image.Image:
    """Return a grid of images: rows are chains, columns are recorded steps."""
    moments, count, _, height, width = trace.positions.shape
    zoom = max(1, round(_SIDE / max(height, width)))
    cell_width, cell_height = max(width * zoom, _SIDE) + _GAP, height * zoom + _TEXT + _GAP
    canvas = Image.new("RGB", (moments * cell_width + _GAP, count * cell_height + _TEXT + _GAP), "white")
    pen = ImageDraw.Draw(canvas)
    grey = grey_levels(trace.positions, pixel_range)
    for moment in range(moments):
        left = _GAP + moment * cell_width
        pen.text((left, _GAP // 2), f"step {trace.steps[moment]}", fill="black")
        for chain in range(count):
            top = _GAP + _TEXT + chain * cell_height
            canvas.paste(enlarged(grey[moment, chain], zoom), (left, top))
            pen.text((left, top + height * zoom + 2), f"E {trace.energies[moment, chain]:.2f}", fill="black")
    return canvas


def grey_levels(positions: Tensor, pixel_range: PixelRange) -> Tensor:
    """Return preprocessed pixels (..., C, H, W) as uint8, black 0 and white 255."""
    return (levels(positions, pixel_range) * 255).round().to(torch.uint8).cpu()


def enlarged(image: Tensor, zoom: int) -> Image.Image:
    """Return one image (C, H, W) uint8, enlarged without smoothing; channels beyond the third are dropped."""
    channels = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    return Image.fromarray(channels.permute(1, 2, 0).repeat_interleave(zoom, 0).repeat_interleave(zoom, 1).numpy())
