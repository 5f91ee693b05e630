"""Tensors and states of ours are read; what asks for more memory or other objects is a sentence."""

import io
import json
import os
import struct
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ebclab.storage.tensors import read_state, read_tensors


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


BYTES = 50_000_000  # that a crafted pickle of some thirty bytes asks for


def saved(path: Path, **state: Any) -> dict[str, bytes]:
    torch.save(state, path)
    with zipfile.ZipFile(path) as archive:
        return {member.filename: archive.read(member) for member in archive.infolist()}


def archive_of(path: Path, parts: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts:
            archive.writestr(name, content)


def test_what_optimizers_and_generators_have_is_read_as_it_was(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2).to(torch.float64)
    for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adam):
        optimizer = kind(layer.parameters(), lr=0.1)
        layer(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
        state = {
            "optimizer": optimizer.state_dict(),
            "generator": torch.Generator().get_state(),
            "plain": OrderedDict(a=[1, 2.5, None, True, "text", (1, "x")], b={"c": 10**30}),
            "types": {
                name: torch.ones(2, dtype=getattr(torch, name)) for name in ("bfloat16", "int32", "uint8", "bool")
            },
        }
        torch.save(state, tmp_path / "state.pt")
        found = read_state(tmp_path / "state.pt")
        assert found["plain"] == state["plain"]
        assert torch.equal(found["generator"], state["generator"])
        assert all(torch.equal(found["types"][name], value) for name, value in state["types"].items())
        for one, other in zip(
            found["optimizer"]["state"].values(), optimizer.state_dict()["state"].values(), strict=True
        ):
            assert all(torch.equal(one[key], other[key]) for key in other if isinstance(other[key], torch.Tensor))


def calling(module: bytes, name: bytes) -> bytes:
    """The pickle of a dictionary with the result of a call with a large number."""
    return b"\x80\x02}X\x01\x00\x00\x00xc" + module + b"\n" + name + b"\nJ" + BYTES.to_bytes(4, "little") + b"\x85Rs."


def with_pickle(content: bytes) -> Callable[[dict[str, bytes]], list[tuple[str, bytes]]]:
    return lambda parts: [(name, content if name.endswith("data.pkl") else part) for name, part in parts.items()]


def twice(parts: dict[str, bytes]) -> list[tuple[str, bytes]]:
    return [*parts.items(), *((name, part) for name, part in parts.items() if name.endswith("data.pkl"))]


CRAFTED_STATES = {
    "bytearray": (
        with_pickle(calling(b"__builtin__", b"bytearray")),
        "more than tensors .*, got __builtin__ bytearray",
    ),
    "builtins": (with_pickle(calling(b"builtins", b"bytearray")), "more than tensors .*, got builtins bytearray"),
    "a class of ours": (with_pickle(calling(b"os", b"urandom")), "more than tensors .*, got os urandom"),
    "stack global": (
        with_pickle(b"\x80\x04\x8c\x08builtins\x8c\x09bytearray\x93J" + BYTES.to_bytes(4, "little") + b"\x85R."),
        "more than tensors and plain values, got STACK_GLOBAL",
    ),
    "no pickle": (with_pickle(b"\xff\xfe"), "was not written by torch"),
    "no parts": (lambda parts: [], "or one twice"),
    "a part twice": (twice, "or one twice"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", CRAFTED_STATES)
def test_crafted_archives_are_refused_in_little_memory(case: str, tmp_path: Path) -> None:
    craft, said = CRAFTED_STATES[case]
    path = tmp_path / "state.pt"
    archive_of(path, craft(saved(path, step=1)))
    tracemalloc.start()
    with pytest.raises(ValueError, match=said):
        read_state(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < BYTES // 10


def test_parts_that_share_their_bytes_are_refused_before_they_grow(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    parts = saved(path, step=1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**parts, "archive/data/0": b"\0" * 10_000}.items():
            archive.writestr(name, content)
        for number in range(1, 100):  # a hundred parts of the same 10,000 bytes
            other = copy(archive.getinfo("archive/data/0"))
            other.filename = f"archive/data/{number}"
            archive.filelist.append(other)
    with pytest.raises(ValueError, match=r"holds parts of 1,00\d,\d+ bytes in a file of \d\d,\d+"):
        read_state(path)


def test_compressed_parts_are_refused_before_they_grow(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    archive_of(path, [*saved(path, step=1).items(), ("archive/data/9", b"\0" * BYTES)], zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < BYTES // 100
    with pytest.raises(ValueError, match="compressed parts"):
        read_state(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"text", io.BytesIO().getvalue(), b"\x80\x02}."])
def test_what_is_no_archive_is_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"^state\.pt was not written by torch"):
        read_state(tmp_path / "state.pt")
