"""Draws attacked images: one column each, with the clean image, the attacked one, and the magnified difference."""

from __future__ import annotations

import io

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from ebclab.evaluation.chain_picture import enlarged

_SIDE = 96  # minimum displayed side of an image, pixels
_GAP = 12
_TEXT = 16  # height of a line of text, pixels


def draw_attacked(clean: Tensor, attacked: Tensor, eps: float, words: list[tuple[str, str]]) -> bytes:
    """Return a PNG: rows are clean, attacked, and the difference, with -eps as black, 0 as grey and +eps as white.

    Args:
        clean: (n, C, H, W) pixels in [0, 1].
        attacked: (n, C, H, W) the same images after the attack.
        eps: Largest change of a pixel.
        words: Captions of each clean and each attacked image.
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
            levels = (image * 255).round().clamp(0, 255).to(torch.uint8).cpu()
            canvas.paste(enlarged(levels, zoom), (left, top))
            pen.rectangle((left - 1, top - 1, left + width * zoom, top + height * zoom), outline="#8c939c")
            if row < 2:
                pen.text((left, top + height * zoom + 2), words[column][row], fill="black")
    file = io.BytesIO()
    canvas.save(file, format="PNG")
    return file.getvalue()
