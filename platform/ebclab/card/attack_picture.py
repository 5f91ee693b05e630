"""A picture of attacked images: a column for each, with the image, what it became, and the difference magnified."""

from __future__ import annotations

import io

import torch
from PIL import Image, ImageDraw
from torch import Tensor

_SIDE = 96  # shown pixels of an image's side, at least
_GAP = 12
_TEXT = 16  # pixels of a line of text


def draw_attacked(clean: Tensor, attacked: Tensor, eps: float, words: list[tuple[str, str]]) -> bytes:
    """Return a PNG file: rows are clean, attacked, and the difference with -eps black, 0 grey and +eps white.

    Args:
        clean: (n, C, H, W) pixels in [0, 1].
        attacked: The same images after the attack.
        eps: Largest change of a pixel.
        words: What stands below each clean and each attacked image.
    """
    rows = (clean, attacked, 0.5 + (attacked - clean) / (2 * eps))
    height, width = clean.shape[2:]
    zoom = max(1, -(-_SIDE // max(height, width)))
    across, down = width * zoom + _GAP, height * zoom + _TEXT + _GAP
    canvas = Image.new("RGB", (len(clean) * across + _GAP, 3 * down + _GAP), "white")
    pen = ImageDraw.Draw(canvas)
    for row, images in enumerate(rows):
        for column, image in enumerate(images):
            left, top = _GAP + column * across, _GAP + row * down
            canvas.paste(_shown(image, zoom), (left, top))
            pen.rectangle((left - 1, top - 1, left + width * zoom, top + height * zoom), outline="#8c939c")
            if row < 2:
                pen.text((left, top + height * zoom + 2), words[column][row], fill="black")
    file = io.BytesIO()
    canvas.save(file, format="PNG")
    return file.getvalue()


def _shown(image: Tensor, zoom: int) -> Image.Image:
    """Return one image (C, H, W), enlarged without smoothing; channels beyond three are left out."""
    channels = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    levels = (channels * 255).round().clamp(0, 255).to(torch.uint8).cpu()
    return Image.fromarray(levels.permute(1, 2, 0).repeat_interleave(zoom, 0).repeat_interleave(zoom, 1).numpy())
