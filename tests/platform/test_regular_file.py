"""Only files are read, and no more of them than they may have."""

import os
from pathlib import Path

import pytest

from ebclab.regular_file import read_regular


def test_a_file_comes_back_also_through_a_link_and_also_of_just_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file", 5) == read_regular(tmp_path / "link", 5) == b"12345"


@pytest.mark.parametrize(("size", "limit"), [(5, 4), (10**12, 1000)])  # a byte too many, and a sparse terabyte
def test_what_is_larger_than_the_limit_is_refused_by_its_size(tmp_path, size, limit):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(size)
    with pytest.raises(OSError, match=f"{size:,} bytes, more than the {limit:,} it may have"):
        read_regular(tmp_path / "file", limit)


def test_a_file_that_says_it_is_empty_and_is_not_is_read_to_the_limit() -> None:
    path = Path("/proc/self/maps")
    if not path.exists():
        pytest.skip("no /proc here")
    assert path.stat().st_size == 0
    assert read_regular(path, 1 << 24)
    with pytest.raises(OSError, match="more than the 10 it may have"):
        read_regular(path, 10)


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device"])
def test_what_never_ends_is_refused_and_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="a pipe or a device, not a file"):
        read_regular(path, 1000)


def test_a_folder_and_a_missing_file_are_called_so(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 10)
