"""The catalogue's files: plain and compressed ones give the same, damage is named, and nothing they ask for is run."""

import gzip
import hashlib
import lzma
import os
import pickle
import resource
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_images import idx_bytes
from sklearn.datasets import load_digits
from torchvision import datasets
from torchvision.datasets.mnist import read_image_file, read_label_file

from ebclab.data.sources import stored_files
from ebclab.data.sources.catalogue import DATASETS, find_stored
from ebclab.data.sources.stored_files import (
    _ByteArray,
    _ByteType,
    md5_of,
    read_cifar_batch,
    read_digits,
    read_idx,
    read_stored,
)
from ebclab.errors import DataError

CONTENT = bytes(range(256)) * 40
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 4, 300), dtype=np.uint8)  # 300: more than one byte of size


@pytest.fixture
def copies(tmp_path: Path) -> dict[str, Path]:
    for suffix, packed in PACK.items():
        (tmp_path / f"file{suffix}").write_bytes(packed(CONTENT))
    return {suffix: tmp_path / f"file{suffix}" for suffix in PACK}


def test_plain_gz_and_xz_hold_the_same_content_and_are_preferred_in_this_order(copies: dict[str, Path]) -> None:
    assert [read_stored(path) for path in copies.values()] == [CONTENT] * 3
    assert md5_of(copies[""]) == hashlib.md5(CONTENT).hexdigest()
    assert md5_of(copies[".gz"]) == hashlib.md5(copies[".gz"].read_bytes()).hexdigest()
    for path in copies.values():
        assert find_stored(path.parent, "file") == path
        path.unlink()
    assert find_stored(path.parent, "file") is None


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize(("place", "state"), [(None, "cut off"), (0, "damaged, got "), (40, "damaged, got ")])
def test_a_damaged_compressed_file_is_named(copies, suffix, place, state):
    path = copies[suffix]
    content = path.read_bytes()
    if place is None:
        content = content[:-20]
    else:
        content = content[:place] + bytes(byte ^ 0xFF for byte in content[place : place + 8]) + content[place + 8 :]
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"file{suffix}: the compressed file is {state}"):
        read_stored(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for read in (read_stored, md5_of):
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path)  # a folder


def test_a_compressed_file_is_read_up_to_the_size_of_any_such_file(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_files, "LARGEST", 1000)
    for size, suffix in ((1000, ".gz"), (1001, ".gz"), (1001, "")):
        path = tmp_path / f"batch{suffix}"
        path.write_bytes(PACK[suffix](bytes(size)))
        if size == 1000:
            assert read_stored(path) == bytes(1000)
        else:
            with pytest.raises(DataError, match="holds more than 1,000 bytes"):
                read_stored(path)


def test_images_and_labels_equal_what_torchvision_reads_also_compressed(tmp_path: Path) -> None:
    image_file, label_file = tmp_path / "images", tmp_path / "labels"
    image_file.write_bytes(idx_bytes(IMAGES))
    label_file.write_bytes(idx_bytes(np.array([3, 1, 255, 0, 9], dtype=np.uint8)))
    assert torch.equal(read_idx(image_file, 3), read_image_file(str(image_file)))
    assert torch.equal(read_idx(label_file, 1), read_label_file(str(label_file)))
    assert np.array_equal(read_idx(image_file, 3).numpy(), IMAGES)
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx_bytes(IMAGES)))
    assert np.array_equal(read_idx(tmp_path / "images.gz", 3).numpy(), IMAGES)


IDX = idx_bytes(IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (IDX[:-1], r"the file is cut off, got 6015 bytes; expected 6016 for shape \(5, 4, 300\)"),
        (IDX + b"x", "longer than its header says, got at least 6017 bytes; expected 6016"),
        (IDX[:10], "the header is cut off, got 10 bytes; expected at least 16"),
        (b"", "got an empty file"),
        (b"\x1f\x8b" + IDX[2:], "not an IDX file .* got 1f 8b 08 03; it must start with 00 00 08 03"),
        (b"\0\0\x0d" + IDX[3:], "not an IDX file of unsigned bytes"),  # 0x0d: floats
        (IDX[:3] + b"\1" + IDX[4:], "with 3 dimensions, got 00 00 08 01"),
        (IDX[:4] + bytes(12), "the file holds nothing"),
        (IDX[:4] + b"\xff" * 12, "the file is cut off, got 16 bytes; expected "),
    ],
)
def test_a_wrong_idx_file_is_refused_with_its_name_and_sizes(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, 3)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("promised", [bytes(3) + b"\1" + bytes(3) + b"\4" + bytes(3) + b"\4", b"\xff" * 12])
def test_of_a_bomb_no_more_is_read_than_its_header_promises_or_any_such_file_has(tmp_path, monkeypatch, promised):
    monkeypatch.setattr(stored_files, "LARGEST", 1 << 20)
    with gzip.open(tmp_path / "images.gz", "wb", compresslevel=1) as file:
        file.write(b"\0\0\x08\3" + promised)
        file.write(bytes(1 << 26))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"images\.gz: the file is (longer than its header says|cut off), got "):
            read_idx(tmp_path / "images.gz", 3)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_grey_levels_of_digits_are_scaled_from_16_to_255_and_rounded() -> None:
    source = load_digits()
    for split in ("train", "test"):
        images, labels, keys = read_digits(split)
        assert images.dtype == torch.uint8
        assert np.abs(images[:, 0].numpy() - source.images[keys.numpy()] * 255 / 16).max() <= 0.5
        assert images.max() == 255
        assert np.array_equal(labels.numpy(), source.target[keys.numpy()])


def test_a_fifth_of_all_digits_chosen_by_hash_is_for_testing(splitmix64_words: Callable[..., int]) -> None:
    hashed = [splitmix64_words(int.from_bytes(b"digits"), row) % 2**64 for row in range(1797)]
    for_testing = [row for row, each in enumerate(hashed) if each < 0.2 * 2**64]
    assert read_digits("test")[2].tolist() == for_testing
    assert read_digits("train")[2].tolist() == sorted(set(range(1797)) - set(for_testing))


def test_scikit_learn_is_imported_for_digits_only_where_it_keeps_its_file_elsewhere(monkeypatch):
    digits = read_digits("test")
    with monkeypatch.context() as patch:
        patch.setattr(stored_files, "_read_table", stored_files._read_table.__wrapped__)  # which remembers nothing
        patch.setattr(stored_files, "_FILE", "elsewhere.csv.gz")
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(read_digits("test"), digits, strict=True))
        patch.setitem(sys.modules, "sklearn.datasets", None)
        with pytest.raises(ImportError):
            read_digits("test")
    monkeypatch.setattr(stored_files, "_read_table", stored_files._read_table.__wrapped__)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(read_digits("test"), digits, strict=True))


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)


def batch_content(**changes: Any) -> dict[str, Any]:
    return {"batch_label": "a batch", "labels": [6, 9, 0, 3], "data": PIXELS, "filenames": [*"abcd"]} | changes


def write(path: Path, content: Any, protocol: int = 2) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
    return path


def python_2_batch(data: np.ndarray = PIXELS) -> bytes:
    """The opcodes that Python 2 wrote into the official files: bytes as SHORT_BINSTRING, numpy's old module names."""
    raw = data.tobytes()
    return (
        b"\x80\x02}(U\x06labels](K\x06K\x09K\x00K\x03eU\x04data"
        + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + b"(K\x01M" + len(data).to_bytes(2, "little") + b"M\x00\x0c\x86"
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tbu."
    )  # fmt: skip


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("data", [PIXELS, np.asfortranarray(PIXELS)], ids=["rows", "columns"])
def test_images_of_a_batch_are_the_three_planes_of_each_row(tmp_path: Path, protocol: int, data: np.ndarray) -> None:
    images, labels = read_cifar_batch(write(tmp_path / "batch", batch_content(data=data), protocol))
    assert labels.tolist() == [6, 9, 0, 3]
    assert np.array_equal(images.numpy(), PIXELS.reshape(-1, 3, 32, 32))
    assert images[1, 2, 3, 4] == PIXELS[1, 2 * 1024 + 3 * 32 + 4]


@pytest.mark.filterwarnings("ignore:dtype")  # numpy dislikes how old files spell booleans
def test_a_file_written_by_python_2_reads_as_pickle_and_numpy_read_it(tmp_path: Path) -> None:
    path = write(tmp_path / "batch", python_2_batch())
    assert np.array_equal(pickle.loads(path.read_bytes(), encoding="latin1")["data"], PIXELS)
    images, labels = read_cifar_batch(path)
    assert labels.tolist() == [6, 9, 0, 3]
    assert np.array_equal(images.numpy().reshape(-1, 3072), PIXELS)


class Malicious:
    """Asks whoever unpickles it to make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("key", ["data", "labels", "filenames"])
def test_a_pickle_that_asks_to_run_something_is_refused_and_runs_nothing(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "made by a pickle"
    path = write(tmp_path / "batch", batch_content(**{key: Malicious(folder)}))
    with pytest.raises(DataError, match=r"batch: refused, it asks for more than numbers, got \w+\.mkdir"):
        read_cifar_batch(path)
    assert not folder.exists()
    pickle.loads(path.read_bytes())
    assert folder.exists(), "the pickle was harmless, so the test would show nothing"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (batch_content(data=PIXELS.astype(np.float32)), "numbers of type 'f4'"),
        (batch_content(data=np.full((4, 3072), None)), "numbers of type 'O8'"),
        (batch_content(data=PIXELS[:, 1:].copy()), r"got \(4, 3071\); expected bytes of shape \(n, 3072\)"),
        (batch_content(data=PIXELS[0]), r"got \(3072,\)"),
        (batch_content(data=[[0] * 3072]), "'data' does not hold images, got list"),
        (batch_content(labels=[0, 1]), "as many images as labels and at least one, got 4 and 2"),
        (pickle.dumps(batch_content(labels=[], data=PIXELS[:0]), protocol=4), "at least one, got 0 and 0"),
        (batch_content(labels=["a", 1, 2, 3]), "'labels' is not a list of class numbers"),
        (batch_content(labels=[10**30, 1, 2, 3]), "'labels' is not a list of class numbers"),
        ({"num_vis": 3072}, r"not a CIFAR batch, got keys \['num_vis'\]"),
        ([1, 2], "not a CIFAR batch, got list"),
        (pickle.dumps(batch_content(), protocol=2)[:2000], "batch: not a readable pickle, got "),
        (b"", "batch: not a readable pickle, got "),
        (
            python_2_batch().replace(b"M\x04\x00M\x00\x0c", b"M\x05\x00M\x00\x0c"),
            r"12288 bytes do not fill an array of shape \(5, 3072\)",
        ),
    ],
)
def test_a_pickle_that_is_not_a_batch_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_cifar_batch(write(tmp_path / "batch", content))


def test_every_file_has_a_checksum_in_every_release_and_statistics_one_value_a_channel() -> None:
    for entry in DATASETS.values():
        for release in entry.releases:
            assert set(release.md5) == {*entry.files["train"], *entry.files["test"]}
            if release.mean is not None and release.std is not None:
                assert len(release.mean) == len(release.std) == entry.shape[0]


def test_checksums_folders_and_classes_are_torchvisions() -> None:
    official = {name: entry.releases[0].md5 for name, entry in DATASETS.items() if entry.folder}
    for name, idx in (("mnist", datasets.MNIST), ("fashion-mnist", datasets.FashionMNIST)):
        assert {f"{file}.gz": sums[1] for file, sums in official[name].items()} == dict(idx.resources)
    for name, cifar in (("cifar10", datasets.CIFAR10), ("cifar100", datasets.CIFAR100)):
        first = {file: sums[0] for file, sums in official[name].items()}
        assert first == dict(cifar.train_list + cifar.test_list)
    assert datasets.CIFAR100.tgz_md5 == "eb9058c3a382ffc7106e4002c42a8d85"  # the archive that is fetched
    names = DATASETS["cifar100"].class_names
    assert len(names) == 100
    assert list(names) == sorted(set(names))
    assert list(DATASETS["fashion-mnist"].class_names) == datasets.FashionMNIST.classes
    assert {name: DATASETS[name].folder for name in official} == {
        "mnist": "MNIST/raw",
        "fashion-mnist": "FashionMNIST/raw",
        "cifar10": datasets.CIFAR10.base_folder,
        "cifar100": datasets.CIFAR100.base_folder,
    }


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (b"Nr" + struct.pack("<I", 400_000_000) + b"0", "LONG_BINPUT 400000000 in "),
        (b"Np400000000\n0", "PUT 400000000 in "),
    ],
)
def test_a_pickle_that_asks_for_memory_gets_none(tmp_path: Path, bomb: bytes, message: str) -> None:
    whole, path = pickle.dumps(batch_content(), protocol=2), tmp_path / "batch"
    path.write_bytes(whole[:2] + bomb + whole[2:])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=message):
        read_cifar_batch(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB: a GiB


def test_a_number_in_place_of_bytes_takes_no_memory() -> None:
    array = _ByteArray()
    with pytest.raises(ValueError, match="an array of int in place of bytes"):
        array.__setstate__((1, (1 << 40, 3072), _ByteType("u1"), False, (1 << 40) * 3072))  # type: ignore[arg-type]
