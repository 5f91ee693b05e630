"""From a name to images: any copy is read and named, statistics are the training split's, mistakes are explained."""

import gzip
import logging
import lzma
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_images import encoded, idx_bytes, pixels, put_set

from ebclab.config import compose
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import Reading
from ebclab.data.sources import load
from ebclab.data.sources.catalogue import DATASETS, Release, Split, data_root, missing_files
from ebclab.data.sources.image_source import ImageSource
from ebclab.data.sources.load import dataset_named, load_both, load_split
from ebclab.data.sources.location import Place
from ebclab.data.sources.stored_files import md5_of
from ebclab.errors import ConfigError, DataError


@pytest.fixture
def fashion(tmp_path: Path) -> Path:
    """A root with a small dataset in Fashion-MNIST's layout: training pixels dark, test pixels bright."""
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for stem, count, low, high in (("train", 20, 0, 60), ("t10k", 10, 200, 256)):
        images = generator.integers(low, high, (count, 28, 28), dtype=np.uint8)
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(count, dtype=np.uint8) % 10))
    return tmp_path


def test_both_splits_carry_the_statistics_of_the_training_split(fashion: Path) -> None:
    train, test = load_split("fashion-mnist", str(fashion), "train"), load_split("fashion-mnist", str(fashion), "test")
    pixels = train.images.double() / 255
    for split in (train, test):
        assert split.mean == pytest.approx((pixels.mean().item(),), rel=1e-12)
        assert split.std == pytest.approx((pixels.std(unbiased=False).item(),), rel=1e-8)
    assert test.images.double().mean() / 255 > 0.7
    assert (train.images.shape, test.images.shape) == ((20, 1, 28, 28), (10, 1, 28, 28))
    assert test.keys.tolist() == list(range(10))
    assert test.labels.tolist() == list(range(10))
    assert test.class_names[9] == "Ankle boot"


def test_both_parts_are_loaded_with_each_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("train", "test"):
        name = put_set("folder", tmp_path / part, [encoded(pixels(0))], ["a"])
    opened, parts = load._opened, []

    def counting(name: str, location: Place, split: Split, reading: Reading) -> ImageSource:
        parts.append(split)
        return opened(name, location, split, reading)

    monkeypatch.setattr(load, "_opened", counting)
    load_both(name, None)
    assert sorted(parts) == ["test", "train"]


def test_a_copy_is_known_only_when_all_its_files_are(fashion, monkeypatch, caplog):
    entry = DATASETS["fashion-mnist"]
    sums = {path.name.removesuffix(".gz"): (md5_of(path),) for path in (fashion / entry.folder).iterdir()}
    release = Release("ours", sums, mean=(0.125,), std=(0.0625,))
    monkeypatch.setitem(DATASETS, "fashion-mnist", replace(entry, releases=(*entry.releases, release)))
    with caplog.at_level(logging.INFO, "ebclab.data"):
        for split in ("train", "test"):
            known = load_split("fashion-mnist", str(fashion), split)
            assert (known.mean, known.std) == ((0.125,), (0.0625,))
        (fashion / entry.folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(20, dtype=np.uint8)))
        for split in ("train", "test"):
            assert load_split("fashion-mnist", str(fashion), split).mean != (0.125,)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING", "INFO"]
    assert caplog.records[0].getMessage() == "fashion-mnist train: known checksums, copy: ours"
    unknown = "fashion-mnist train: checksums not known, accepted unchecked: train-images-idx3-ubyte.gz, train-labels"
    assert caplog.records[2].getMessage().startswith(unknown)


def put_batch(path: Path, label: int, **labels: list[int]) -> None:
    """Write two images of one level, with the labels of CIFAR-10 or the two kinds of CIFAR-100, compressed."""
    path.parent.mkdir(exist_ok=True)
    batch = {"data": np.full((2, 3072), label, dtype=np.uint8), "filenames": ["x.png"] * 2, **labels}
    path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(pickle.dumps(batch, protocol=2)))


def test_cifar_batches_are_joined_in_order(tmp_path: Path) -> None:
    for label, name in enumerate([*DATASETS["cifar10"].files["train"], "test_batch"]):
        put_batch(tmp_path / "cifar-10-batches-py" / name, label, labels=[label, 9])
    train = load_split("cifar10", str(tmp_path), "train")
    assert train.labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert train.images[:, 2, 31, 31].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert train.mean == pytest.approx([2 / 255] * 3)
    assert train.std == pytest.approx([2**0.5 / 255] * 3)


def test_cifar_100_gives_fine_labels_and_their_names(tmp_path: Path) -> None:
    for name, fine in (("train", [40, 99]), ("test", [3, 0])):
        put_batch(tmp_path / "cifar-100-python" / name, 51, fine_labels=fine, coarse_labels=[19] * 2)
    train, test = (load_split("cifar100", str(tmp_path), split) for split in ("train", "test"))
    assert (train.labels.tolist(), test.labels.tolist()) == ([40, 99], [3, 0])
    assert [train.class_names[label] for label in (0, 99, 40)] == ["apple", "worm", "lamp"]
    assert train.mean == test.mean == pytest.approx([0.2] * 3)


def test_missing_files_are_listed_with_the_folder_and_the_command(fashion: Path) -> None:
    (fashion / "FashionMNIST/raw/train-images-idx3-ubyte.gz").unlink()
    assert missing_files(dataset_named("fashion-mnist"), str(fashion), "train") == ["train-images-idx3-ubyte"]
    assert missing_files(dataset_named("fashion-mnist"), str(fashion), "test") == []
    for split in ("train", "test"):
        with pytest.raises(DataError) as caught:
            load_split("fashion-mnist", str(fashion), split)
        assert str(caught.value) == (
            f"data.root: fashion-mnist is not complete in {fashion}/FashionMNIST/raw, got no train-images-idx3-ubyte "
            f"(plain, .gz or .xz); run `ebclab data fetch fashion-mnist --data-root {fashion}`"
        )


@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.arange(19) % 10, "as many, got 20 and 19"), (np.arange(20), r"got 0 to 19; expected 0 to 9")],
)
def test_labels_that_do_not_fit_are_refused(fashion: Path, labels: np.ndarray, message: str) -> None:
    path = fashion / "FashionMNIST/raw/train-labels-idx1-ubyte"
    path.write_bytes(idx_bytes(labels.astype(np.uint8)))
    with pytest.raises(DataError, match=message):
        load_split("fashion-mnist", str(fashion), "train")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cifar", "did you mean cifar10"),
        ("FashionMNIST", "did you mean fashion"),
        ("xyz", "known are digits, mnist"),
        ("tiny_imagenet:/data/tiny", r"did you mean tiny-imagenet:/data/tiny\?"),
        ("imagnet100:/data/i", r"did you mean imagenet100:/data/i\?"),
        ("ImageNet", "it is named by its place, imagenet:PATH"),
    ],
)
def test_an_unknown_name_gets_the_nearest_or_the_list(name: str, hint: str) -> None:
    with pytest.raises(DataError, match=f"data.name: no such dataset, got '{name}'; {hint}"):
        load_split(name, None, "train")
    if ":" in name:
        with pytest.raises(ConfigError, match=f"data.name: no such dataset, got '{name}'; {hint}"):
            compose("simclr", overrides=[f"data.name={name}"])


def test_the_root_is_the_argument_then_the_environment_then_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBCLAB_DATA", "/from/environment")
    assert data_root("/from/argument") == Path("/from/argument")
    assert data_root(None) == Path("/from/environment")
    monkeypatch.delenv("EBCLAB_DATA")
    assert data_root(None) == Path.home() / ".cache/ebclab"
    assert data_root("relative") == Path.cwd() / "relative"
    monkeypatch.setenv("EBCLAB_DATA", "gs://bucket/sets")
    with pytest.raises(DataError, match=r"EBCLAB_DATA: .*, got gs://bucket/sets;"):
        data_root(None)


def test_digits_need_no_files_and_no_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ebclab.data"):
        train, test = load_split("digits", str(tmp_path), "train"), load_split("digits", str(tmp_path), "test")
    assert caplog.records == []
    assert (train.mean, train.std) == (test.mean, test.std)
    assert train.mean[0] == pytest.approx(train.images.double().mean().item() / 255)
    entry = DATASETS["digits"]
    assert (len(train), len(test)) == (entry.num_images["train"], entry.num_images["test"])
    assert tuple(train.images.shape[1:]) == entry.shape


def exact_statistics(channel: torch.Tensor) -> tuple[float, float]:
    """Mean and standard deviation in [0, 1] of bytes, from whole-number sums: exact but for the last square root."""
    levels = channel.to(torch.int64)
    count, total, squares = levels.numel(), int(levels.sum()), int(levels.square().sum())
    mean = Fraction(total, count * 255)
    return float(mean), float(Fraction(squares, count * 255**2) - mean**2) ** 0.5


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", pytest.param("cifar10", marks=pytest.mark.slow)])
def test_real_files_are_known_whole_and_have_the_statistics_on_record(
    name: str, real: Callable[[str, Split], ImageSet], caplog: pytest.LogCaptureFixture
) -> None:
    entry = DATASETS[name]
    with caplog.at_level(logging.INFO, "ebclab.data"):
        train, test = real(name, "train"), real(name, "test")
    assert [record.levelno for record in caplog.records] == [logging.INFO] * 2
    assert all("known checksums" in record.getMessage() for record in caplog.records)
    for split, images in (("train", train), ("test", test)):
        assert images.images.shape == (entry.num_images[split], *entry.shape)
    for channel in range(entry.shape[0]):
        mean, std = exact_statistics(train.images[:, channel])
        for images in (train, test):
            assert images.mean[channel] == pytest.approx(mean, rel=1e-15)
            assert images.std[channel] == pytest.approx(std, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "per_class"), [("fashion-mnist", 1000), pytest.param("cifar10", 1000, marks=pytest.mark.slow)]
)
def test_real_test_sets_have_as_many_images_of_each_class(
    name: str, per_class: int, real: Callable[[str, Split], ImageSet]
) -> None:
    assert torch.bincount(real(name, "test").labels).tolist() == [per_class] * 10
