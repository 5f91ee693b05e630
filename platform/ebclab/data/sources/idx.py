"""Reader for IDX files, the format of MNIST and Fashion-MNIST.

An IDX file is: two zero bytes, a type code, the number of dimensions, each dimension as a big-endian 32-bit
integer, then the elements. Only unsigned bytes (code 0x08) are read here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ebclab.data.sources.archives import read_stored
from ebclab.errors import DataError

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, num_dimensions: int) -> Tensor:
    """Return the uint8 tensor stored in ``path``.

    Args:
        path: IDX file, plain or compressed (.gz, .xz).
        num_dimensions: How many dimensions the file must have: 3 for images, 1 for labels.
    """
    magic = bytes((0, 0, _UNSIGNED_BYTE, num_dimensions))

    def promised(head: bytes) -> int:
        """Return the length that the header states; without a valid header, nothing more is read."""
        if head[:4] != magic or len(head) < 4 + 4 * num_dimensions:
            return 0
        shape: tuple[int, ...] = struct.unpack_from(f">{num_dimensions}I", head, 4)
        return 4 + 4 * num_dimensions + math.prod(shape)

    content = bytearray(read_stored(path, promised))
    if content[:4] != magic:
        start = content[:4].hex(" ") or "an empty file"
        raise DataError(
            f"{path}: not an IDX file of unsigned bytes with {num_dimensions} dimensions, got {start}; "
            f"it must start with {magic.hex(' ')}"
        )
    header_size = 4 + 4 * num_dimensions
    if len(content) < header_size:
        raise DataError(f"{path}: the header is cut off, got {len(content)} bytes; expected at least {header_size}")
    shape = struct.unpack_from(f">{num_dimensions}I", content, 4)
    expected = header_size + math.prod(shape)
    if len(content) != expected:
        state = "cut off" if len(content) < expected else "longer than its header says"
        got = f"{len(content)} bytes" if len(content) < expected else f"at least {len(content)} bytes"
        raise DataError(f"{path}: the file is {state}, got {got}; expected {expected} for shape {shape}")
    if expected == header_size:
        raise DataError(f"{path}: the file holds nothing, got shape {shape}; expected at least one element")
    return torch.frombuffer(content, dtype=torch.uint8, offset=header_size).view(shape)


def read_idx_split(paths: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """Return images (n, 1, H, W) uint8 and labels (n,) int64 of one split.

    Args:
        paths: The image file and the label file, in this order.
    """
    image_path, label_path = paths
    return read_idx(image_path, 3).unsqueeze(1), read_idx(label_path, 1).long()
