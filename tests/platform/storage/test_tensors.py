"""Files of tensors that somebody wrote: a sentence, without the memory or time that they ask for."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ebclab.storage.tensors import read_tensors


def file_of(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(shape: list[int], end: int) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}


CRAFTED = {
    "nothing": b"",
    "a header of 8 EB": struct.pack("<Q", 2**63) + b"{}",
    "a header of 100 MB that is not there": struct.pack("<Q", 99_000_000) + b"{}",
    "a header of 300,000 tensors": file_of({f"{n}": one([0], 0)["a"] for n in range(300_000)}),
    "4 TB in four bytes": file_of(one([10**12], 4), b"abcd"),
    "4 TB that are not there": file_of(one([10**12], 4 * 10**12), b"abcd"),
    "a size that overflows": file_of(one([2**33, 2**33], 0)),
    "two tensors in one place": file_of(one([1], 4) | {"b": one([1], 4)["a"]}, b"abcd"),
    "lists within lists": struct.pack("<Q", 1_000_005) + b'{"a":' + b"[" * 1_000_000,
}


def test_tensors_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([], dtype=torch.int8)}
    save_file(tensors, tmp_path / "file")
    assert {name: tensor.tolist() for name, tensor in read_tensors(tmp_path / "file").items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_header_is_refused(tmp_path: Path, case: str) -> None:
    (tmp_path / "file").write_bytes(CRAFTED[case])
    with pytest.raises(ValueError, match=r"header|metadata"):
        read_tensors(tmp_path / "file")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    with pytest.raises(OSError, match="a pipe or a device, not a file"):
        read_tensors(tmp_path / "file")
