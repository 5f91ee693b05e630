"""Pictures of images in rows, with captions, frames, and names of rows and columns."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

LEAST = 96
"""Pixels of the shorter side to which small images are enlarged, at least."""

_GAP, _MARGIN, _LINE = 12, 20, 16
_TITLE = 26  # height of a title
_LONGEST_NAME = 240  # pixels
_INK, _FAINT, _PAPER = "#1e2024", "#787c82", "white"


class Tile(NamedTuple):
    """One image of a picture."""

    pixels: Tensor  # (C, H, W) uint8; channels beyond the third are dropped
    caption: str = ""  # below it
    frame: str = ""  # its colour; a thin grey one if empty


def as_picture(pixels: Tensor, least: int = 1, most: int = 0) -> Image.Image:
    """Return an image (C, H, W) uint8, enlarged by a whole factor until its shorter side has ``least`` pixels.

    Its pixels stay square and sharp. If the longer side has more than ``most``, it is shrunk to that; 0: it is not.
    """
    channels = pixels[:3] if len(pixels) >= 3 else pixels[:1].expand(3, -1, -1)
    picture = Image.fromarray(channels.permute(1, 2, 0).contiguous().cpu().numpy())
    factor = -(-least // min(picture.size))
    picture = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    if most:
        picture.thumbnail((most, most))
    return picture


def as_png(picture: Image.Image) -> bytes:
    """Return a picture as the content of a PNG."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def draw_grid(
    rows: Sequence[Sequence[Tile]],
    *,
    title: Sequence[str] = (),
    heads: Sequence[str] = (),
    names: Sequence[str] = (),
    least: int = LEAST,
    most: int = 0,
    is_first_apart: bool = False,
) -> Image.Image:
    """Return images in rows; images of several sizes are centred in equal cells.

    Args:
        title: Its title, and lines below it.
        heads: Names of the columns, above them.
        names: Names of the rows, at their left; long ones are cut.
        least: See ``as_picture``; so is ``most``.
        is_first_apart: Whether the first column stands apart from the others.
    """
    large, small = ImageFont.load_default(size=18), ImageFont.load_default(size=12)
    pictures = [[as_picture(tile.pixels, least, most) for tile in row] for row in rows]
    words = [*heads, *(tile.caption for row in rows for tile in row)]
    wide = max(*(each.width for row in pictures for each in row), *(_length(word, small) for word in words))
    high, line = max(each.height for row in pictures for each in row), _LINE * any(words[len(heads) :])
    names = [_cut(name, small) for name in names]
    left = _MARGIN + max((_length(name, small) + _GAP for name in names), default=0)
    top = _MARGIN + (_TITLE + _LINE * (len(title) - 1) + _GAP if title else 0) + (_LINE if heads else 0)
    across, down = wide + _GAP, high + line + _GAP
    right = left + max(map(len, rows)) * across - _GAP + (_GAP if is_first_apart else 0)
    right = max(right, *(_MARGIN + _length(text, small if number else large) for number, text in enumerate(title)), 0)
    sheet = Image.new("RGB", (right + _MARGIN, top + len(rows) * down - _GAP + _MARGIN), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, text in enumerate(title):
        y = _MARGIN + (_TITLE + _LINE * (number - 1) if number else 0)
        pen.text((_MARGIN, y), text, _FAINT if number else _INK, small if number else large)
    for down_to, (row, drawn) in enumerate(zip(rows, pictures, strict=True)):
        y = top + down_to * down
        if names:
            pen.text((left - _GAP, y + high / 2), names[down_to], _INK, small, anchor="rm")
        for along, (tile, picture) in enumerate(zip(row, drawn, strict=True)):
            x = left + along * across + (_GAP if is_first_apart and along else 0)
            if heads and not down_to:
                pen.text((x + wide / 2, y - 6), heads[along], _FAINT, small, anchor="ms")
            place = x + (wide - picture.width) // 2, y + (high - picture.height) // 2
            away, broad = (3, 2) if tile.frame else (1, 1)
            corner = place[0] + picture.width + away - 1, place[1] + picture.height + away - 1
            pen.rectangle((place[0] - away, place[1] - away, *corner), outline=tile.frame or _FAINT, width=broad)
            sheet.paste(picture, place)
            pen.text((x + wide / 2, place[1] + picture.height + 3), tile.caption, _INK, small, anchor="mt")
    return sheet


_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def _length(text: str, font: _Font) -> int:
    return math.ceil(font.getlength(text))


def _cut(name: str, font: _Font) -> str:
    shown = name
    while _length(shown, font) > _LONGEST_NAME:
        name = name[: min(len(name) - 1, _LONGEST_NAME)]  # a character takes a pixel at least
        shown = f"{name}..."
    return shown
