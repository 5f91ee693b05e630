"""Tiny made-up sets in the layouts of published ones; the red of an image tells its class, 20 for each."""

import io
import os
from pathlib import Path

import numpy as np
from made_up_images import put
from PIL import Image
from scipy.io import savemat

SHADES_A_CLASS = 20


def picture(label: int, side: int = 8) -> bytes:
    """Return a JPEG of one colour that tells a class below 13."""
    buffer = io.BytesIO()
    Image.new("RGB", (side + 4, side), (SHADES_A_CLASS * label, 100, 50)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def write_tiny_imagenet(root: Path) -> Path:
    """Write two classes, whose order in wnids.txt is not that of their numbers, and three validation images."""
    put(root / "wnids.txt", b"n02124075\nn01443537\n")
    for wnid, label in (("n02124075", 0), ("n01443537", 1)):
        for number in range(4):
            put(root / f"train/{wnid}/images/{wnid}_{number}.JPEG", picture(label))
        put(root / f"train/{wnid}/{wnid}_boxes.txt", b"")
    boxes = "0\t0\t62\t62"
    rows = [("val_0.JPEG", "n01443537"), ("val_1.JPEG", "n02124075"), ("val_2.JPEG", "n01443537")]
    for name, wnid in rows:
        put(root / f"val/images/{name}", picture(int(wnid == "n01443537")))
    put(root / "val/val_annotations.txt", "".join(f"{name}\t{wnid}\t{boxes}\n" for name, wnid in rows).encode())
    put(root / "test/images/test_0.JPEG", picture(0))
    return root


def write_imagenet(root: Path, wnids: list[str], *, per_class: int = 2, flat: bool = False, sides: int = 8) -> Path:
    """Write classes with training images and one validation image each; files of a shade are one file.

    Args:
        root: The set's folder.
        wnids: The classes, of which every tenth has the same red.
        per_class: Training images of a class.
        flat: All validation images in one folder, with Kaggle's table.
        sides: Side of the images, pixels.
    """
    shades = root.parent / f"{root.name}-shades"
    for shade in range(10):
        put(shades / f"{shade}.jpg", picture(shade, sides))
    table = ["ImageId,PredictionString"]
    for label, wnid in enumerate(wnids):
        name = f"ILSVRC2012_val_{len(wnids) - label:08d}"
        table.append(f"{name},{wnid} 1 2 3 4 {wnid} 5 6 7 8 ")
        files = [f"train/{wnid}/{wnid}_{number}.JPEG" for number in range(per_class)]
        for file in [*files, f"val/{name}.JPEG" if flat else f"val/{wnid}/{name}.JPEG"]:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            os.link(shades / f"{label % 10}.jpg", root / file)
    if flat:
        put(root / "LOC_val_solution.csv", "\n".join(table).encode())
    return root


def write_stl10(root: Path) -> dict[str, np.ndarray]:
    """Write 4 training, 3 test and 5 unlabelled images; return them by part as (n, 3, 96 rows, 96 columns)."""
    random = np.random.default_rng(0)
    images = {
        part: random.integers(0, 256, (count, 3, 96, 96), dtype=np.uint8)
        for part, count in (("train", 4), ("test", 3), ("unlabeled", 5))
    }
    for part, pixels in images.items():
        by_column = b"".join(
            bytes([int(image[channel, row, column])])
            for image in pixels[:1]
            for channel in range(3)
            for column in range(96)
            for row in range(96)
        )
        put(root / f"{part}_X.bin", by_column + pixels[1:].swapaxes(2, 3).tobytes())
    put(root / "train_y.bin", bytes([1, 10, 3, 2]))
    put(root / "test_y.bin", bytes([10, 1, 5]))
    return images


def write_flowers(root: Path) -> Path:
    """Write seven images: 3 and 6 train, 1 validates, the others test; image n is of class n."""
    for number in range(1, 8):
        put(root / f"jpg/image_{number:05d}.jpg", picture(number))
    savemat(root / "imagelabels.mat", {"labels": np.arange(1, 8, dtype=np.uint8)[None]})
    splits = {"trnid": [6, 3], "valid": [1], "tstid": [2, 4, 5, 7]}
    savemat(root / "setid.mat", {name: np.array([ids], dtype=np.uint16) for name, ids in splits.items()})
    return root


def write_caltech(root: Path, per_class: int = 32) -> Path:
    """Write the background and 101 classes; three have more than one image."""
    names = ["BACKGROUND_Google", *(f"class_{number:03d}" for number in range(101))]
    for label, name in enumerate(names):
        for number in range(per_class if label < 3 else 1):
            put(root / f"101_ObjectCategories/{name}/image_{number + 1:04d}.jpg", picture(label % 10))
    put(root / "101_ObjectCategories/BACKGROUND_Google/tmp", b"as published")
    return root


def write_sun(root: Path) -> Path:
    """Write three kinds of scenes, one of them a folder within a folder, with two images each."""
    classes = ["a/abbey", "a/apse/indoor", "z/zoo"]
    for label, name in enumerate(classes):
        for number in range(2):
            put(root / f"{name}/sun_{label}{number}.jpg", picture(label))
    lists = {"Training_01": 0, "Testing_01": 1}
    for name, number in lists.items():
        lines = [f"/{each}/sun_{label}{number}.jpg" for label, each in reversed(list(enumerate(classes)))]
        put(root / f"Partitions/{name}.txt", "\n".join(lines).encode())
    put(root / "Partitions/ClassName.txt", "".join(f"/{name}\n" for name in classes).encode())
    return root
