"""Loads a dataset by its name: finds its files, recognises which copy they are, reads and checks them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ebclab.config.addresses import OWN, expanded, folder_problem
from ebclab.config.names import no_such_dataset
from ebclab.data.class_labels import Labels, as_in_training
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.sources.archives import find_stored, md5_of
from ebclab.data.sources.catalogue import DATASETS, Dataset, Release, Split
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.folder import FolderSource, folder_splits
from ebclab.data.sources.image_source import ImageSource, load_images, training_statistics
from ebclab.data.sources.layouts.every_layout import LAYOUTS
from ebclab.data.sources.layouts.layout import open_layout, splits_of_layout
from ebclab.data.sources.location import any_word, location_of, splits_among
from ebclab.data.sources.parquet import ParquetSource
from ebclab.data.sources.shards.arrow import ArrowSource, arrow_splits
from ebclab.data.sources.shards.webdataset import WebdatasetSource, shards_at
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

__all__ = [
    "DATASETS",
    "Dataset",
    "Split",
    "data_root",
    "dataset_named",
    "load_both",
    "load_split",
    "missing_files",
    "open_source",
    "splits_of",
]

_log = logging.getLogger("ebclab.data")


_AS_STORED = Reading()


class _Kind(NamedTuple):
    """Functions of one kind of location: open a split, and list the splits."""

    open: Callable[[str, str, Split, Reading], ImageSource]
    splits: Callable[[str], tuple[Split, ...]]


_KINDS = {
    "folder": _Kind(FolderSource, folder_splits),
    "parquet": _Kind(ParquetSource, lambda path: splits_among(Location(path).files(ParquetSource.suffixes), any_word)),
    "webdataset": _Kind(WebdatasetSource, lambda path: splits_among(list(shards_at(path)[1]), any_word)),
    "arrow": _Kind(ArrowSource, arrow_splits),
}


def load_split(name: str, root: str | None, split: Split, reading: Reading = _AS_STORED) -> ImageSet:
    """Return one split of the dataset ``name``, in the order of its files.

    Args:
        name: A key of ``DATASETS``, or a location such as ``folder:PATH``.
        root: Folder that holds the datasets of the catalogue; None means $EBCLAB_DATA, then ~/.cache/ebclab.
        split: "train" or "test". The statistics are the training split's in both cases.
        reading: How the images of a folder or Parquet set are read.
    """
    if location_of(name) is not None:
        source, training = _with_training(name, split, reading)
        return load_images(source, source.index, training_statistics(training))
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


def load_both(name: str, root: str | None, reading: Reading = _AS_STORED) -> tuple[ImageSet, ImageSet]:
    """Return training and test images as ``load_split`` does, with each part of a location opened once."""
    if location_of(name) is None:
        return load_split(name, root, "train", reading), load_split(name, root, "test", reading)
    test, training = _with_training(name, "test", reading)
    statistics = training_statistics(training)
    return load_images(training, training.index, statistics), load_images(test, test.index, statistics)


def open_source(name: str, split: Split, reading: Reading) -> ImageSource:
    """Return one split of a dataset that is named by its location; the index is read, images are not.

    Classes of test images have the numbers of the same classes of the training part, which is opened for this.

    Args:
        name: A location such as ``folder:PATH``.
        reading: How images are read.
    """
    return _opened(name, split, reading) if _numbers_alone(name, split) else _with_training(name, split, reading)[0]


def _with_training(name: str, split: Split, reading: Reading) -> tuple[ImageSource, ImageSource]:
    """Return a part, its classes numbered as in the training part, and that part."""
    source = _opened(name, split, reading)
    training = source if split == "train" else _opened(name, "train", reading)
    if not _numbers_alone(name, split):
        _number_as(training, source)
    return source, training


def _numbers_alone(name: str, split: Split) -> bool:
    """Return whether a part's classes need no other part: those of training, and of sets with one published list."""
    location = location_of(name)
    return split == "train" or (location is not None and location.kind in LAYOUTS)


def _number_as(training: ImageSource, test: ImageSource) -> None:
    """Give the classes of a test part their numbers in the training part."""
    of_test, of_train = (Labels(each.index.labels, each.class_names) for each in (test, training))
    labels = as_in_training(of_test, of_train, test.name)
    test.index, test.class_names = replace(test.index, labels=labels.numbers), labels.names


def _opened(name: str, split: Split, reading: Reading) -> ImageSource:
    location = location_of(name)
    if location is None:
        raise DataError(
            f"data.name: {name} is not read in parts, got no folder:PATH or parquet:PATH; "
            f"run `ebclab data prepare {name} --to DIR` and write parquet:DIR"
        )
    if location.kind in LAYOUTS:
        return open_layout(LAYOUTS[location.kind], name, location.path, split, reading)
    return _KINDS[location.kind].open(name, location.path, split, reading)


def splits_of(name: str) -> tuple[Split, ...]:
    """Return which splits the dataset ``name`` has."""
    location = location_of(name)
    if location is None:
        return ("train", "test")
    if location.kind in LAYOUTS:
        return splits_of_layout(LAYOUTS[location.kind], location.path)
    return _KINDS[location.kind].splits(location.path)


def dataset_named(name: str) -> Dataset:
    """Return the catalogue's entry for ``name``."""
    if name in DATASETS:
        return DATASETS[name]
    if name.startswith(OWN):
        raise DataError(
            f"data.name: {name} are images that were given from Python and lie in no file; give them again there: "
            "pretrain(..., images=...) and evaluate(run, images=(train, test)), or evaluate on another --dataset"
        )
    raise DataError(f"data.name: {no_such_dataset(name, DATASETS)}")


def data_root(root: str | None) -> Path:
    """Return the absolute folder that holds datasets: ``root``, else $EBCLAB_DATA, else ~/.cache/ebclab."""
    folder = root or os.environ.get("EBCLAB_DATA") or "~/.cache/ebclab"
    if problem := folder_problem(folder):
        raise DataError(f"{'data.root' if root else 'EBCLAB_DATA'}: {problem}")
    return expanded(folder).absolute()


def missing_files(dataset: Dataset, root: str | None, split: Split) -> list[str]:
    """Return the files of ``split`` that are missing below ``root``, plain and compressed; empty if it is complete."""
    folder = data_root(root) / dataset.folder
    return [name for name in dataset.files[split] if find_stored(folder, name) is None]


def _require_files(dataset: Dataset, root: str | None, split: Split) -> list[Path]:
    folder = data_root(root) / dataset.folder
    paths = {name: find_stored(folder, name) for name in dataset.files[split]}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise DataError(
            f"data.root: {dataset.name} is not complete in {folder}, got no {', '.join(missing)} (plain, .gz or .xz); "
            f"run `ebclab data fetch {dataset.name} --data-root {data_root(root)}`"
        )
    return [path for path in paths.values() if path is not None]


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
    """Log which copy was read, unless the dataset is embedded and has no files."""
    if release is not None:
        _log.info("%s %s: known checksums, copy: %s", dataset.name, split, release.name)
    elif paths:
        folder, names = paths[0].parent, ", ".join(path.name for path in paths)
        _log.warning("%s %s: checksums not known, accepted as they are: %s in %s", dataset.name, split, names, folder)
