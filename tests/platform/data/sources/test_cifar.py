"""CIFAR batches: read as numpy would, without running anything a file asks for."""

from __future__ import annotations

import lzma
import os
import pickle
import resource
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ebclab.data.sources import cifar
from ebclab.data.sources.cifar import read_cifar_batch, read_cifar_split
from ebclab.errors import DataError

NUM_IMAGES = 4


def batch_content(**changes: Any) -> dict[str, Any]:
    data = np.random.default_rng(0).integers(0, 256, (NUM_IMAGES, 3072), dtype=np.uint8)
    return {"batch_label": "a batch", "labels": [6, 9, 0, 3], "data": data, "filenames": ["a", "b", "c", "d"]} | changes


def write(path: Path, content: Any, protocol: int = 2) -> Path:
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


def python_2_batch(data: np.ndarray) -> bytes:
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
def test_images_are_the_three_planes_of_each_row(tmp_path: Path, protocol: int) -> None:
    content = batch_content()
    images, labels = read_cifar_batch(write(tmp_path / "batch", content, protocol))
    assert labels.tolist() == content["labels"]
    assert np.array_equal(images.numpy(), content["data"].reshape(-1, 3, 32, 32))
    assert images[1, 2, 3, 4] == content["data"][1, 2 * 1024 + 3 * 32 + 4]


@pytest.mark.filterwarnings("ignore:dtype")  # numpy dislikes how old files spell booleans
def test_a_file_written_by_python_2_reads_as_pickle_and_numpy_read_it(tmp_path: Path) -> None:
    data = batch_content()["data"]
    path = tmp_path / "batch"
    path.write_bytes(python_2_batch(data))
    assert np.array_equal(pickle.loads(path.read_bytes(), encoding="latin1")["data"], data)
    images, labels = read_cifar_batch(path)
    assert labels.tolist() == [6, 9, 0, 3]
    assert np.array_equal(images.numpy().reshape(-1, 3072), data)


def test_an_array_stored_by_columns_gives_the_same_images(tmp_path: Path) -> None:
    content = batch_content()
    by_columns = batch_content(data=np.asfortranarray(content["data"]))
    read, expected = (write(tmp_path / name, each) for name, each in (("f", by_columns), ("c", content)))
    assert torch.equal(read_cifar_batch(read)[0], read_cifar_batch(expected)[0])


def test_batches_follow_each_other_in_the_order_given_xz_or_plain(tmp_path: Path) -> None:
    first = write(tmp_path / "first", batch_content())
    second = tmp_path / "second.xz"
    second.write_bytes(lzma.compress(pickle.dumps(batch_content(labels=[1, 1, 2, 2]), protocol=2)))
    images, labels = read_cifar_split([second, first])
    assert labels.tolist() == [1, 1, 2, 2, 6, 9, 0, 3]
    assert images.shape == (2 * NUM_IMAGES, 3, 32, 32)


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
        (batch_content(data=np.zeros((4, 3072), dtype=np.float32)), "numbers of type 'f4'"),
        (batch_content(data=np.full((4, 3072), None)), "numbers of type 'O8'"),
        (
            batch_content(data=np.zeros((4, 3071), dtype=np.uint8)),
            r"got \(4, 3071\); expected bytes of shape \(n, 3072\)",
        ),
        (batch_content(data=np.zeros(3072, dtype=np.uint8)), r"got \(3072,\)"),
        (batch_content(data=[[0] * 3072]), "'data' does not hold images, got list"),
        (batch_content(labels=[0, 1]), "as many images as labels and at least one, got 4 and 2"),
        (batch_content(labels=["a", 1, 2, 3]), "'labels' is not a list of class numbers"),
        (batch_content(labels=[10**30, 1, 2, 3]), "'labels' is not a list of class numbers"),
        ({"num_vis": 3072}, r"not a CIFAR batch, got keys \['num_vis'\]"),
        ([1, 2], "not a CIFAR batch, got list"),
    ],
)
def test_a_pickle_that_is_not_a_batch_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_cifar_batch(write(tmp_path / "batch", content))


def test_a_batch_of_no_images_is_refused(tmp_path: Path) -> None:
    nothing = batch_content(labels=[], data=np.zeros((0, 3072), dtype=np.uint8))
    with pytest.raises(DataError, match="at least one, got 0 and 0"):
        read_cifar_batch(write(tmp_path / "batch", nothing, protocol=4))


@pytest.mark.parametrize(
    "change", [lambda content: content[:2000], lambda content: b"not a pickle", lambda content: b""]
)
def test_a_damaged_pickle_is_named(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "batch"
    path.write_bytes(change(pickle.dumps(batch_content(), protocol=2)))
    with pytest.raises(DataError, match="batch: not a readable pickle, got "):
        read_cifar_batch(path)


def test_an_array_whose_bytes_do_not_fill_its_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(python_2_batch(batch_content()["data"]).replace(b"M\x04\x00M\x00\x0c", b"M\x05\x00M\x00\x0c"))
    with pytest.raises(DataError, match=r"12288 bytes do not fill an array of shape \(5, 3072\)"):
        read_cifar_batch(path)


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
    array = cifar._ByteArray()
    with pytest.raises(ValueError, match="an array of int in place of bytes"):
        array.__setstate__((1, (1 << 40, 3072), cifar._ByteType("u1"), False, (1 << 40) * 3072))  # type: ignore[arg-type]
