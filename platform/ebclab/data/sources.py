"""From a dataset's name to its images: find the files, say which copy they are, read and check them."""

from __future__ import annotations

import difflib
import logging
import os
from pathlib import Path

from torch import Tensor

from ebclab.data.catalogue import DATASETS, Dataset, Release, Split
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.stored import find_stored, md5_of
from ebclab.errors import DataError

__all__ = ["DATASETS", "Dataset", "Split", "data_root", "dataset_named", "load_split", "missing_files"]

_log = logging.getLogger("ebclab.data")


def load_split(name: str, root: str | None, split: Split) -> ImageSet:
    """Return one split of the dataset ``name``, in the order of its files.

    Args:
        name: A key of ``DATASETS``.
        root: Folder that holds datasets; None means $EBCLAB_DATA, then ~/.cache/ebclab.
        split: "train" or "test". The statistics are the training split's in both cases.

    Raises:
        DataError: No such dataset; files are missing, damaged or do not fit together.
    """
    dataset = dataset_named(name)
    paths = _require_files(dataset, root, split)
    train_paths = paths if split == "train" else _require_files(dataset, root, "train")
    images, labels, keys = _read(dataset, split, paths)
    release = _release_of(dataset, paths)
    _report(dataset, split, paths, release)
    train_release = release if split == "train" else _release_of(dataset, train_paths)
    if train_release is not None and train_release.mean is not None and train_release.std is not None:
        mean, std = train_release.mean, train_release.std
    else:
        mean, std = channel_statistics(images if split == "train" else _read(dataset, "train", train_paths)[0])
    return ImageSet(dataset.name, images, labels, keys, dataset.class_names, mean, std)


def dataset_named(name: str) -> Dataset:
    """Return the catalogue's entry for ``name``.

    Raises:
        DataError: There is none.
    """
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), DATASETS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(DATASETS)}"
    raise DataError(f"data.name: no such dataset, got {name!r}; {hint}")


def data_root(root: str | None) -> Path:
    """Return the absolute folder that holds datasets: ``root``, else $EBCLAB_DATA, else ~/.cache/ebclab."""
    return Path(root or os.environ.get("EBCLAB_DATA") or "~/.cache/ebclab").expanduser().absolute()


def missing_files(dataset: Dataset, root: str | None, split: Split) -> list[str]:
    """Return which files of ``split`` lie below ``root`` neither plain nor compressed; empty when it can be read."""
    folder = data_root(root) / dataset.folder
    return [name for name in dataset.files[split] if find_stored(folder, name) is None]


def _require_files(dataset: Dataset, root: str | None, split: Split) -> list[Path]:
    folder = data_root(root) / dataset.folder
    found = {name: find_stored(folder, name) for name in dataset.files[split]}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise DataError(
            f"data.root: {dataset.name} is not complete in {folder}, got no {', '.join(missing)} (plain, .gz or .xz); "
            f"run `ebclab data fetch {dataset.name} --data-root {data_root(root)}`"
        )
    return [path for path in found.values() if path is not None]


def _read(dataset: Dataset, split: Split, paths: list[Path]) -> tuple[Tensor, Tensor, Tensor]:
    images, labels, keys = dataset.read(split, paths)
    where = f"{paths[0].parent if paths else dataset.name} ({split})"
    if len(images) != len(labels):
        raise DataError(f"{where}: images and labels must be as many, got {len(images)} and {len(labels)}")
    low, high, last = int(labels.min()), int(labels.max()), len(dataset.class_names) - 1
    if low < 0 or high > last:
        raise DataError(f"{where}: labels must name classes, got {low} to {high}; expected 0 to {last}")
    return images, labels, keys


def _release_of(dataset: Dataset, paths: list[Path]) -> Release | None:
    """Return the release that all of ``paths`` belong to, or None."""
    sums = {path: md5_of(path) for path in paths}
    for release in dataset.releases:
        if all(sums[path] in release.md5[_plain_name(path)] for path in paths):
            return release
    return None


def _plain_name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".xz")


def _report(dataset: Dataset, split: Split, paths: list[Path], release: Release | None) -> None:
    """Say in one line which copy was read; an embedded dataset has no files to speak of."""
    if release is not None:
        _log.info("%s %s: known checksums, copy: %s", dataset.name, split, release.name)
    elif paths:
        folder, names = paths[0].parent, ", ".join(path.name for path in paths)
        _log.warning("%s %s: checksums not known, accepted as they are: %s in %s", dataset.name, split, names, folder)
