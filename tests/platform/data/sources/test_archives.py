"""Files plain and compressed give the same bytes, and damage is named."""

from __future__ import annotations

import gzip
import hashlib
import lzma
from pathlib import Path

import pytest

from ebclab.data.sources.archives import find_stored, md5_of, read_stored
from ebclab.errors import DataError

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def copies(tmp_path: Path) -> dict[str, Path]:
    stored = {"": CONTENT, ".gz": gzip.compress(CONTENT), ".xz": lzma.compress(CONTENT)}
    for suffix, content in stored.items():
        (tmp_path / f"file{suffix}").write_bytes(content)
    return {suffix: tmp_path / f"file{suffix}" for suffix in stored}


def test_plain_gz_and_xz_hold_the_same_content(copies: dict[str, Path]) -> None:
    assert [read_stored(path) for path in copies.values()] == [CONTENT] * 3


def test_the_plain_file_is_preferred_then_gz_then_xz(copies: dict[str, Path]) -> None:
    folder = copies[""].parent
    found = []
    while (path := find_stored(folder, "file")) is not None:
        found.append(path.name)
        path.unlink()
    assert found == ["file", "file.gz", "file.xz"]


def test_md5_is_that_of_the_file_as_stored(copies: dict[str, Path]) -> None:
    assert md5_of(copies[""]) == hashlib.md5(CONTENT).hexdigest()
    assert md5_of(copies[".gz"]) == hashlib.md5(copies[".gz"].read_bytes()).hexdigest()


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_cut_off_compressed_file_is_named(copies: dict[str, Path], suffix: str) -> None:
    path = copies[suffix]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=f"file{suffix}: the compressed file is cut off"):
        read_stored(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("place", ["magic", "body"])
def test_a_damaged_compressed_file_is_named(copies: dict[str, Path], suffix: str, place: str) -> None:
    path = copies[suffix]
    content = bytearray(path.read_bytes())
    start = 0 if place == "magic" else 40
    content[start : start + 8] = bytes(byte ^ 0xFF for byte in content[start : start + 8])
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"file{suffix}: the compressed file is damaged, got "):
        read_stored(path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for read in (read_stored, md5_of):
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path)  # a folder
