"""Downloads a dataset's files, only when asked, through torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlparse

from ebclab.config.addresses import LOCATIONS
from ebclab.data.sources.catalogue import Dataset, data_root, missing_files
from ebclab.data.sources.load import dataset_named
from ebclab.errors import DataError


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
    source = _sources()[dataset.name]
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


def _sources() -> dict[str, Any]:
    """Return torchvision's class for each dataset that can be downloaded; importing it takes seconds."""
    from torchvision import datasets

    return {
        "mnist": datasets.MNIST,
        "fashion-mnist": datasets.FashionMNIST,
        "cifar10": datasets.CIFAR10,
        "cifar100": datasets.CIFAR100,
    }
