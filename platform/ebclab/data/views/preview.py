"""A picture of a dataset's images, each with some of its training views beside it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ebclab.config.addresses import is_address
from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words
from ebclab.data.image_grid import Tile, as_png, draw_grid
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing, preprocessing_for
from ebclab.data.views.pipeline import make_views
from ebclab.errors import UserError
from ebclab.storage import atomic
from ebclab.storage.lock import require_creatable

_SIDE = 64  # pixels that a small image is enlarged to, at least


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
    rows = [[*map(Tile, (image, *beside))] for image, beside in zip(chosen.images, shown.unbind(dim=1), strict=True)]
    _, height, width = image_set.images.shape[1:]
    facts = f"view recipe: {views_config.recipe} · {len(image_set):,} images of {width}x{height} pixels"
    sheet = draw_grid(
        rows,
        title=(f"{image_set.name}: images and their views", facts),
        heads=["image", *(f"view {number}" for number in range(1, views + 1))],
        names=[image_set.class_name(int(label)) for label in chosen.labels],
        least=_SIDE,
        is_first_apart=True,
    )
    _save(as_png(sheet), Path(path))


def require_png(path: str | Path) -> None:
    """Refuse a path that is not that of a PNG on a disk, or whose folder cannot be created."""
    if is_address(str(path)):
        raise UserError(f"{path}: pictures are written to a disk; name a file on it, and copy it there")
    if Path(path).suffix.lower() != ".png":
        raise UserError(f"--views: not the name of a PNG, got {str(path)!r}; write one such as views.png")
    if not Path(path).parent.exists():
        require_creatable(Path(path).parent, "--views")


def _varied_rows(image_set: ImageSet, count: int, seed: int) -> Tensor:
    """Return ``count`` rows in the order of a hash, one of each class before a second of any."""
    shuffled = torch.argsort(hash_words(seed, image_set.keys), stable=True)
    times: dict[int, int] = {}
    turns = []
    for label in image_set.labels[shuffled].tolist():
        turns.append(times.get(label, 0))
        times[label] = turns[-1] + 1
    return shuffled[torch.argsort(torch.tensor(turns), stable=True)[:count]]


def _visible(views: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Undo the normalisation of ``views`` (..., C, h, w) and return bytes; noise beyond the range is clipped."""
    mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std).view(-1, 1, 1)
    return ((views.cpu() * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def _save(png: bytes, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(path, png)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: the picture cannot be written, got {reason}; give another path") from error
