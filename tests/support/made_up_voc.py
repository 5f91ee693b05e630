"""A made-up set in the layout of PASCAL VOC: ten test images, whose APs are worked out by hand, and training images.

Red falls from the first test image to the last, blue rises. The marks of the test images, first to last:

    cat   1  0 -1  1 -1 -1 -1 -1 -1 -1     0: difficult
    dog  -1 -1 -1 -1 -1 -1 -1  1  1 -1

By red, without the difficult one, cats are at ranks 1 and 3: precision 1 at recall 1/2 and 2/3 at recall 1. By blue,
dogs are at ranks 2 and 3 of ten: precision 1/2 and 2/3, of which 2/3 is the best at or above either recall.
"""

from pathlib import Path

import numpy as np
from PIL import Image

TEST = {"cat": [1, 0, -1, 1, -1, -1, -1, -1, -1, -1], "dog": [-1] * 7 + [1, 1, -1]}
AREA = {"cat": 5 / 6, "dog": 2 / 3}
ELEVEN_POINT = {"cat": (6 + 5 * 2 / 3) / 11, "dog": 2 / 3}


def write_voc(folder: Path, training: int = 8, *, lists: bool = True) -> Path:
    """Write a set; return its folder.

    Args:
        folder: Where VOCdevkit comes to lie.
        training: Training images; every second one shows a cat, every third a dog.
        lists: With lists of classes; otherwise annotations alone tell.
    """
    root = folder / "VOCdevkit" / "VOC2007"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / name).mkdir(parents=True)
    train = {
        "cat": [1 if n % 2 == 0 else -1 for n in range(training)],
        "dog": [1 if n % 3 == 0 else -1 for n in range(training)],
    }
    for split, first, marks in (("trainval", 0, train), ("test", 500, TEST)):
        count = len(marks["cat"])
        names = [f"{first + n:06d}" for n in range(count)]
        (root / f"ImageSets/Main/{split}.txt").write_text("\n".join(names) + "\n")
        for n, name in enumerate(names):
            _picture(root / f"JPEGImages/{name}.jpg", n, count, {each: marks[each][n] for each in marks}, split)
            (root / f"Annotations/{name}.xml").write_text(_annotation({each: marks[each][n] for each in marks}))
        for each in marks if lists else ():
            lines = [f"{name} {mark:2d}" for name, mark in zip(names, marks[each], strict=True)]
            (root / f"ImageSets/Main/{each}_{split}.txt").write_text("\n".join(lines) + "\n")
    return root


def _picture(path: Path, number: int, count: int, marks: dict[str, int], split: str) -> None:
    """Save a photograph of a size of its own; red and blue tell classes of training images, ranks of the others."""
    pixels = np.zeros((20 + number, 30, 3), dtype=np.uint8)
    if split == "test":
        pixels[..., 0], pixels[..., 2] = 230 - 20 * number, 30 + 20 * number
    else:
        pixels[..., 0] = 60 + 120 * (marks["cat"] == 1) + number % 7
        pixels[..., 2] = 60 + 120 * (marks["dog"] == 1) + number % 5
    Image.fromarray(pixels).save(path, quality=98)


def _annotation(marks: dict[str, int]) -> str:
    objects = [
        f"<object><name>{name}</name><difficult>{int(mark == 0)}</difficult><part><name>head</name></part></object>"
        for name, mark in marks.items()
        if mark >= 0
    ]
    twice = "<object><name>cat</name><difficult>1</difficult></object>" if marks["cat"] == 1 else ""
    return f"<annotation><folder>VOC2007</folder>{''.join(objects)}{twice}</annotation>"
