"""Loads a dataset by its name: one of the catalogue from its files, any other from the place that its name gives.

Files of the catalogue are downloaded through torchvision, only when asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any
from urllib.parse import urlparse

import torch

from ebclab.config.addresses import LOCATIONS, OWN
from ebclab.config.names import no_such_dataset
from ebclab.data.class_labels import Labels, as_in_training
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import Reading
from ebclab.data.sources.catalogue import (
    DATASETS,
    PUBLISHED,
    Dataset,
    Split,
    data_root,
    missing_files,
)
from ebclab.data.sources.folder import FolderSource, folder_splits
from ebclab.data.sources.image_source import ImageSource, load_images, training_statistics
from ebclab.data.sources.layouts import layout_splits, open_layout
from ebclab.data.sources.location import Place, any_word, location_of, splits_among, tell_once, tell_unlabelled
from ebclab.data.sources.stored_files import load_stored
from ebclab.data.sources.webdataset import WebdatasetSource, shards_at
from ebclab.errors import DataError, MixedSizesError
from ebclab.formatting import count, first_few
from ebclab.storage.filesystem import Location

_AS_STORED = Reading()
_CLASSES_SHOWN = 10  # in a message

_Kinds = dict[str, tuple[Callable[[str, str, Split, Reading], ImageSource], Callable[[str], tuple[Split, ...]]]]


@cache
def _kinds() -> _Kinds:
    """Return functions that open a split of a kind of location, and that list its splits; imports pyarrow."""
    from ebclab.data.sources.arrow import ArrowSource, arrow_splits
    from ebclab.data.sources.parquet import ParquetSource

    return {
        "folder": (FolderSource, folder_splits),
        "parquet": (ParquetSource, lambda path: splits_among(Location(path).files((ParquetSource.suffix,)), any_word)),
        "webdataset": (WebdatasetSource, lambda path: splits_among(list(shards_at(path)[1]), any_word)),
        "arrow": (ArrowSource, arrow_splits),
        **{name: (partial(open_layout, each), partial(layout_splits, each)) for name, each in PUBLISHED.items()},
    }


def load_split(name: str, root: str | None, split: Split, reading: Reading = _AS_STORED) -> ImageSet:
    """Return one split of the dataset ``name``, in the order of its files, with the training split's statistics.

    Args:
        name: A key of ``DATASETS``, or a location such as ``folder:PATH``.
        root: Folder that holds the datasets of the catalogue; None means $EBCLAB_DATA, then ~/.cache/ebclab.
    """
    location = location_of(name)
    if location is None:
        return load_stored(dataset_named(name), root, split)
    source, training = _with_training(name, location, split, reading)
    return load_images(source, source.index, training_statistics(training))


def load_both(
    name: str, root: str | None, reading: Reading = _AS_STORED, *, needs_test: bool = True, side: int = 0
) -> tuple[ImageSet, ImageSet]:
    """Return training and test images as ``load_split`` does, with each part of a location opened once.

    Args:
        needs_test: Whether a dataset without a test part is refused; else its training images are both parts.
        side: Side, pixels, of the squares to which image files of several sizes are scaled; 0: they are refused.
    """
    try:
        return _both(name, root, reading, needs_test)
    except MixedSizesError:
        if not side or reading.resize:
            raise
        tell_once(f"{name}: images of several sizes, their largest central squares are scaled to {side} pixels")
        return _both(name, root, replace(reading, resize=side), needs_test)


def _both(name: str, root: str | None, reading: Reading, needs_test: bool) -> tuple[ImageSet, ImageSet]:
    if not needs_test and "test" not in splits_of(name):
        alone = load_split(name, root, "train", reading)
        return alone, alone
    location = location_of(name)
    if location is None:
        return load_split(name, root, "train", reading), load_split(name, root, "test", reading)
    test, training = _with_training(name, location, "test", reading)
    statistics = training_statistics(training)
    return load_images(training, training.index, statistics), load_images(test, test.index, statistics)


def open_source(name: str, split: Split, reading: Reading) -> ImageSource:
    """Return one split of a dataset that is named by its location; the index is read, images are not.

    Classes of test images have the numbers of the same classes of the training part, which is opened for this.
    """
    location = location_of(name)
    if location is None:
        raise DataError(
            f"data.name: {name} is not read in parts, got no folder:PATH or parquet:PATH; "
            f"run `ebclab data prepare {name} --to DIR` and write parquet:DIR"
        )
    if _numbers_alone(location, split):
        return _opened(name, location, split, reading)
    return _with_training(name, location, split, reading)[0]


def _with_training(name: str, location: Place, split: Split, reading: Reading) -> tuple[ImageSource, ImageSource]:
    """Return a part, its classes numbered as in the training part, and that part."""
    source = _opened(name, location, split, reading)
    training = source if split == "train" else _opened(name, location, "train", reading)
    if not _numbers_alone(location, split):
        if isinstance(source, WebdatasetSource) and isinstance(training, WebdatasetSource):
            source.name_classes_as(training)
        if bool((source.index.labels < 0).all()) and bool((training.index.labels >= 0).any()):
            tell_once(f"{name}: its test images have no labels, its training images have")
        test_labels, train_labels = (Labels(each.index.labels, each.class_names) for each in (source, training))
        labels = as_in_training(test_labels, train_labels, name)
        _tell_untested(name, labels, train_labels)
        source.index, source.class_names = replace(source.index, labels=labels.numbers), labels.names
    return source, training


def _tell_untested(name: str, test: Labels, train: Labels) -> None:
    """Log once which classes of the training part have no image in the test part, if that has labels."""
    tested, known = (set(torch.unique(part.numbers[part.numbers >= 0]).tolist()) for part in (test, train))
    if tested and (absent := sorted(known - tested)):
        names = first_few([train.names[each] if train.names else str(each) for each in absent], _CLASSES_SHOWN)
        tell_once(f"{name}: {count(len(absent), 'class', 'classes')} of training images without test images: {names}")


def _numbers_alone(location: Place, split: Split) -> bool:
    """Return whether a part's classes need no other part: those of training, and of sets with one published list."""
    return split == "train" or location[0] in PUBLISHED


def _opened(name: str, location: Place, split: Split, reading: Reading) -> ImageSource:
    kind, path = location
    source = _kinds()[kind][0](name, path, split, reading)
    if kind != "folder":  # which tells about its tables too
        tell_unlabelled(name, split, source.index.labels)
    return source


def splits_of(name: str) -> tuple[Split, ...]:
    """Return which splits the dataset ``name`` has."""
    location = location_of(name)
    return ("train", "test") if location is None else _kinds()[location[0]][1](location[1])


def dataset_named(name: str) -> Dataset:
    """Return the catalogue's entry for ``name``."""
    if name in DATASETS:
        return DATASETS[name]
    if name.startswith(OWN):
        raise DataError(
            f"data.name: {name} are images that were given from Python and are in no file; give them again there: "
            "pretrain(..., images=...) and evaluate(run, images=(train, test)), or evaluate on another --dataset"
        )
    raise DataError(f"data.name: {no_such_dataset(name, DATASETS)}")


def fetch(name: str, root: str | None, progress: Callable[[str], None] = print) -> None:
    """Download the files of the dataset ``name`` below ``root``, unless they are there or none are needed.

    ``progress`` is called with one line a stage; torchvision draws its own bar on stderr.
    """
    if name.startswith(LOCATIONS):
        raise DataError(
            f"data fetch: images that are named by their place are yours, got {name}; `ebclab data list` says what is "
            "downloaded, and what to unpack where"
        )
    dataset = dataset_named(name)
    folder = data_root(root) / dataset.folder
    if not dataset.folder:
        progress(f"{name}: comes with scikit-learn, nothing to download")
        return
    if not missing_files(dataset, root, *dataset.files):
        progress(f"{name}: all files are in {folder}; delete them to fetch them again")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"data.root: cannot create {folder}, got {error.strerror or error}; give another folder with --data-root"
        ) from error
    _download(dataset, root, progress)
    if still := missing_files(dataset, root, *dataset.files):
        raise DataError(f"{folder}: incomplete after the download, got no {', '.join(still)}; fetch again")
    progress(f"{name}: done, files in {folder}; terms of use: {dataset.licence}")


def _download(dataset: Dataset, root: str | None, progress: Callable[[str], None]) -> None:
    from torchvision import datasets  # takes seconds

    source: Any = {
        "mnist": datasets.MNIST,
        "fashion-mnist": datasets.FashionMNIST,
        "cifar10": datasets.CIFAR10,
        "cifar100": datasets.CIFAR100,
    }[dataset.name]
    hosts = ", ".join(str(urlparse(url).hostname) for url in getattr(source, "mirrors", None) or [source.url])
    progress(f"{dataset.name}: downloading from {hosts}")
    try:
        source(str(data_root(root)), download=True)
    except (OSError, RuntimeError) as error:  # as URLError and timeouts are; torchvision wraps some in RuntimeError
        folder = data_root(root) / dataset.folder
        reason = str(error).strip().splitlines()[-1]
        files = ", ".join(missing_files(dataset, root, *dataset.files))
        raise DataError(
            f"data fetch: could not download {dataset.name} from {hosts}, got {reason}; check the network (a proxy is "
            f"read from HTTPS_PROXY) or copy {files} into {folder} (plain, .gz or .xz)"
        ) from error
