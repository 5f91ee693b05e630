"""IDX files: the bytes in the order of the header, and one sentence for each way a file can be wrong."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets.mnist import read_image_file, read_label_file

from ebclab.data.sources import archives
from ebclab.data.sources.idx import read_idx, read_idx_split
from ebclab.errors import DataError


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 4, 300), dtype=np.uint8)  # 300: more than one byte of size


def test_images_and_labels_equal_what_torchvision_reads(tmp_path: Path, images: np.ndarray) -> None:
    image_file, label_file = tmp_path / "images", tmp_path / "labels"
    image_file.write_bytes(idx_bytes(images))
    label_file.write_bytes(idx_bytes(np.array([3, 1, 255, 0, 9], dtype=np.uint8)))
    read_images, read_labels = read_idx_split([image_file, label_file])
    assert torch.equal(read_images[:, 0], read_image_file(str(image_file)))
    assert torch.equal(read_labels, read_label_file(str(label_file)))
    assert read_images.dtype == torch.uint8
    assert read_labels.dtype == torch.int64
    assert np.array_equal(read_images[:, 0].numpy(), images)


def test_gz_is_read_in_place(tmp_path: Path, images: np.ndarray) -> None:
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx_bytes(images)))
    assert np.array_equal(read_idx(tmp_path / "images.gz", 3).numpy(), images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], r"the file is cut off, got 6015 bytes; expected 6016 for shape \(5, 4, 300\)"),
        (lambda content: content + b"x", "longer than its header says, got at least 6017 bytes; expected 6016"),
        (lambda content: content[:10], "the header is cut off, got 10 bytes; expected at least 16"),
        (lambda content: b"", "got an empty file"),
        (
            lambda content: b"\x1f\x8b" + content[2:],
            "not an IDX file .* got 1f 8b 08 03; it must start with 00 00 08 03",
        ),
        (lambda content: b"\0\0\x0d" + content[3:], "not an IDX file of unsigned bytes"),  # 0x0d: floats
        (lambda content: content[:3] + b"\1" + content[4:], "with 3 dimensions, got 00 00 08 01"),
        (lambda content: content[:4] + bytes(12), "the file holds nothing"),
        (lambda content: content[:4] + b"\xff" * 12, "the file is cut off, got 16 bytes; expected "),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_sizes(tmp_path: Path, images: np.ndarray, change, message) -> None:
    path = tmp_path / "images"
    path.write_bytes(change(idx_bytes(images)))
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, 3)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("promised", [bytes(3) + b"\1" + bytes(3) + b"\4" + bytes(3) + b"\4", b"\xff" * 12])
def test_of_a_bomb_no_more_is_read_than_its_header_promises_or_any_such_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promised: bytes
) -> None:
    monkeypatch.setattr(archives, "LARGEST", 1 << 20)
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


def test_a_compressed_file_without_a_header_is_read_up_to_the_size_of_any_such_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "LARGEST", 1000)
    for size, suffix in ((1000, ".gz"), (1001, ".gz"), (1001, "")):
        with (gzip.open if suffix else open)(tmp_path / f"batch{suffix}", "wb") as file:
            file.write(bytes(size))
        if size == 1000:
            assert archives.read_stored(tmp_path / "batch.gz") == bytes(1000)
        else:
            with pytest.raises(DataError, match="holds more than 1,000 bytes"):
                archives.read_stored(tmp_path / f"batch{suffix}")
