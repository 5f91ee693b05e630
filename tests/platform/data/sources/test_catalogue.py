"""The catalogue agrees with itself and with torchvision's own lists."""

from __future__ import annotations

import pytest
from torchvision import datasets

from ebclab.data.sources.catalogue import DATASETS, Dataset

STORED = [entry for entry in DATASETS.values() if entry.folder]


@pytest.mark.parametrize("entry", DATASETS.values(), ids=DATASETS)
def test_every_file_has_a_checksum_in_every_release_and_no_other_file_has(entry: Dataset) -> None:
    for release in entry.releases:
        assert set(release.md5) == {*entry.files["train"], *entry.files["test"]}


@pytest.mark.parametrize("entry", DATASETS.values(), ids=DATASETS)
def test_statistics_have_one_value_a_channel(entry: Dataset) -> None:
    for release in entry.releases:
        if release.mean is not None and release.std is not None:
            assert len(release.mean) == len(release.std) == entry.shape[0]


@pytest.mark.parametrize(("name", "source"), [("mnist", datasets.MNIST), ("fashion-mnist", datasets.FashionMNIST)])
def test_checksums_of_idx_files_are_those_torchvision_downloads(name: str, source: type[datasets.MNIST]) -> None:
    official = DATASETS[name].releases[0].md5
    assert {f"{file}.gz": sums[1] for file, sums in official.items()} == dict(source.resources)


def test_checksums_of_official_cifar_batches_are_torchvisions() -> None:
    official = {file: sums[0] for file, sums in DATASETS["cifar10"].releases[0].md5.items()}
    assert official == dict(datasets.CIFAR10.train_list + datasets.CIFAR10.test_list)


def test_checksums_of_cifar_100_are_torchvisions_and_the_archive_fetched_is_the_official_one() -> None:
    official = {file: sums[0] for file, sums in DATASETS["cifar100"].releases[0].md5.items()}
    assert official == dict(datasets.CIFAR100.train_list + datasets.CIFAR100.test_list)
    assert datasets.CIFAR100.tgz_md5 == "eb9058c3a382ffc7106e4002c42a8d85"
    names = DATASETS["cifar100"].class_names
    assert len(names) == 100
    assert list(names) == sorted(set(names))


def test_class_names_of_fashion_mnist_are_torchvisions() -> None:
    assert list(DATASETS["fashion-mnist"].class_names) == datasets.FashionMNIST.classes


def test_folders_are_where_torchvision_keeps_its_files() -> None:
    folders = {entry.name: entry.folder for entry in STORED}
    assert folders == {
        "mnist": "MNIST/raw",
        "fashion-mnist": "FashionMNIST/raw",
        "cifar10": datasets.CIFAR10.base_folder,
        "cifar100": datasets.CIFAR100.base_folder,
    }
