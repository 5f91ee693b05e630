"""A picture of a dataset's images, each with some of its training views beside it."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ebclab.config.addresses import is_address
from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing, preprocessing_for
from ebclab.data.views import make_views
from ebclab.errors import UserError
from ebclab.storage import atomic

_TILE = 64  # pixels a small image is enlarged to, at least
_GAP = 6
_MARGIN = 20
_LABEL_WIDTHS = 96, 240  # pixels of the column of class names, at least and at most
_LABEL_GAP = 12
_HEADER = 68  # title, line below it, column captions
_INK, _FAINT, _PAPER = (30, 32, 36), (120, 124, 130), (255, 255, 255)


def draw_views(
    image_set: ImageSet, views_config: ViewsConfig, path: str | Path, *, count: int = 8, views: int = 6, seed: int = 0
) -> None:
    """Write a PNG, whole or not at all, with one row an image: its class, the image itself, and views of it.

    At most ``count`` images are chosen, by hash and from as many classes as possible. Where images share a draw, all
    rows do. Missing folders are made.
    """
    require_png(path)
    chosen = image_set.rows(_varied_rows(image_set, count, seed))
    preprocessing = preprocessing_for(views_config, image_set)
    shared = None if views_config.shared_by == "image" else torch.zeros_like(chosen.keys)
    made = make_views(
        chosen.images, chosen.keys, views_config, preprocessing, seed=seed, epoch=0, num_views=views, shared=shared
    )
    shown = _visible(made, preprocessing)  # (V, B, C, h, w)
    rows = [
        [_tile(image), *(_tile(view) for view in image_views)]
        for image, image_views in zip(chosen.images, shown.unbind(dim=1), strict=True)
    ]
    names = [_class_name(image_set, int(label)) for label in chosen.labels]
    _save(_sheet(rows, names, image_set, views_config), Path(path))


def require_png(path: str | Path) -> None:
    """Refuse a path that is not that of a PNG on a disk."""
    if is_address(str(path)):
        raise UserError(f"{path}: pictures are written to a disk; name a file on it, and copy it there")
    if Path(path).suffix.lower() != ".png":
        raise UserError(f"--views: not the name of a PNG, got {str(path)!r}; write one such as views.png")


def _varied_rows(image_set: ImageSet, count: int, seed: int) -> Tensor:
    """Return ``count`` rows in the order of a hash, one of each class before a second of any."""
    shuffled = torch.argsort(hash_words(seed, image_set.keys), stable=True)
    times: dict[int, int] = {}
    turns = []
    for label in image_set.labels[shuffled].tolist():
        turns.append(times.get(label, 0))
        times[label] = turns[-1] + 1
    return shuffled[torch.argsort(torch.tensor(turns), stable=True)[:count]]


def _class_name(image_set: ImageSet, label: int) -> str:
    if 0 <= label < len(image_set.class_names):
        return image_set.class_names[label]
    return f"class {label}" if label >= 0 else "no label"


def _visible(views: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Undo the normalisation of ``views`` (..., C, h, w) and return bytes; noise beyond the range is clipped."""
    mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std).view(-1, 1, 1)
    return ((views.cpu() * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def _tile(image: Tensor) -> Image.Image:
    """Return (C, H, W) bytes as a picture, enlarged by a whole factor so that pixels stay square and sharp."""
    channels, height, width = image.shape
    colour = image if channels == 3 else image[:1].expand(3, height, width)
    factor = -(-_TILE // min(height, width))
    picture = Image.fromarray(colour.permute(1, 2, 0).contiguous().numpy())
    return picture.resize((width * factor, height * factor), Image.Resampling.NEAREST)


def _sheet(rows: list[list[Image.Image]], names: list[str], image_set: ImageSet, config: ViewsConfig) -> Image.Image:
    """Lay out the tiles in a grid under a title, with the class at the left of each row."""
    cell = max(max(tile.size) for row in rows for tile in row)
    step = cell + _GAP
    columns = len(rows[0])
    title, small = ImageFont.load_default(size=18), ImageFont.load_default(size=12)
    names = [_cut(name, small) for name in names]
    label_width = max(_LABEL_WIDTHS[0], *(math.ceil(small.getlength(name)) + _LABEL_GAP for name in names))
    width = 2 * _MARGIN + label_width + columns * step + _GAP
    sheet = Image.new("RGB", (width, 2 * _MARGIN + _HEADER + len(rows) * step - _GAP), _PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN, _MARGIN), f"{image_set.name}: images and their views", _INK, title)
    _, height, width_of_image = image_set.images.shape[1:]
    facts = f"view recipe: {config.recipe} · {len(image_set):,} images of {width_of_image}x{height} pixels"
    pen.text((_MARGIN, _MARGIN + 26), facts, _FAINT, small)
    for column in range(columns):
        left = _MARGIN + label_width + column * step + (_GAP if column else 0)  # a gap more after the originals
        caption = "image" if column == 0 else f"view {column}"
        pen.text((left + cell / 2, _MARGIN + _HEADER - 6), caption, _FAINT, small, anchor="ms")
        for row, tiles in enumerate(rows):
            tile = tiles[column]
            top = _MARGIN + _HEADER + row * step
            sheet.paste(tile, (left + (cell - tile.width) // 2, top + (cell - tile.height) // 2))
    for row, name in enumerate(names):
        middle = _MARGIN + _HEADER + row * step + cell / 2
        pen.text((_MARGIN + label_width - _LABEL_GAP, middle), name, _INK, small, anchor="rm")
    return sheet


def _cut(name: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    shown = name
    while font.getlength(shown) > _LABEL_WIDTHS[1] - _LABEL_GAP:
        name = name[: min(len(name) - 1, _LABEL_WIDTHS[1])]  # a character takes a pixel at least
        shown = f"{name}..."
    return shown


def _save(sheet: Image.Image, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.written_aside(path) as file:
            sheet.save(file, format="PNG")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: the picture cannot be written, got {reason}; give another path") from error
