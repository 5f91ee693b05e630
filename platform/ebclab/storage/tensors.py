"""Reads files of tensors in safetensors' format."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ebclab.regular_file import open_regular

_LARGEST = 1 << 50  # bytes of the file, without a real limit: no tensor is larger than its part of the file
_LARGEST_HEADER = 4 << 20  # bytes; of 40,000 tensors; takes twenty times as much memory


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file, on the CPU, by name."""
    with open_regular(path, _LARGEST) as file:
        header = int.from_bytes(file.read(8), "little")
    if header > _LARGEST_HEADER:
        raise ValueError(f"a header of {header:,} bytes, more than the {_LARGEST_HEADER:,} it may have")
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return tensors
