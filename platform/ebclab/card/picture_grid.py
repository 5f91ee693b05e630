"""Draws rows of images, each with a caption below it."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw
from torch import Tensor

from ebclab.evaluation.chain_picture import enlarged

_SIDE = 96  # minimum displayed height of an image, pixels
_GAP = 12
_TEXT = 16  # height of a line of text, pixels


def draw_grid(rows: Sequence[Sequence[tuple[Tensor, str]]], titles: Sequence[str] = ()) -> bytes:
    """Return a PNG of images of one size (C, H, W), uint8, with captions; each row below its title, if it has one."""
    height, width = rows[0][0][0].shape[1:]
    zoom = max(1, -(-_SIDE // height))
    head = _TEXT if titles else 0
    across, down = width * zoom + _GAP, height * zoom + _TEXT + _GAP + head
    canvas = Image.new("RGB", (max(map(len, rows)) * across + _GAP, len(rows) * down + _GAP), "white")
    pen = ImageDraw.Draw(canvas)
    for number, row in enumerate(rows):
        if titles:
            pen.text((_GAP, _GAP + number * down), titles[number], fill="black")
        for column, (levels, caption) in enumerate(row):
            left, top = _GAP + column * across, _GAP + number * down + head
            canvas.paste(enlarged(levels.cpu(), zoom), (left, top))
            pen.rectangle((left - 1, top - 1, left + width * zoom, top + height * zoom), outline="#8c939c")
            pen.text((left, top + height * zoom + 2), caption, fill="black")
    file = io.BytesIO()
    canvas.save(file, format="PNG")
    return file.getvalue()
