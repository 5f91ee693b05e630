"""Reads files of tensors: in safetensors' format, and the state of a run as torch writes it.

A state is an archive with a pickle, which makes tensors and plain values alone. ``torch.load(weights_only=True)`` runs
no foreign code, but it calls whatever it holds harmless with any argument: ``bytearray(n)`` takes n bytes. So the
pickle is looked through before, and the archive can hold no more than its file.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ebclab.regular_file import open_regular

_LARGEST = 1 << 50  # bytes of the file, without a real limit: no tensor is larger than its part of the file
_LARGEST_HEADER = 4 << 20  # bytes; of 40,000 tensors; takes twenty times as much memory

_MAKERS = re.compile(r"torch\._utils _rebuild_tensor(?:_v2)?|collections OrderedDict|torch [A-Za-z0-9]{1,20}Storage")
"""What a state of ours has its reader call."""

_CALLS = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "BYTEARRAY8", "NEXT_BUFFER"}
"""Operations of a pickle that make objects otherwise than a state of ours does."""


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


def read_state(path: Path) -> dict[str, Any]:
    """Return the state that ``torch.save`` wrote."""
    try:
        _require_plain(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, _NotPlainError):
        raise
    except pickle.UnpicklingError as error:
        raise _NotPlainError(f"{path.name} holds more than tensors and plain values") from error
    except Exception as error:  # torch and zipfile raise errors of all kinds for foreign bytes
        raise ValueError(f"{path.name} was not written by torch ({type(error).__name__})") from error
    if not isinstance(state, dict):
        raise ValueError(f"{path.name} holds no state, got {type(state).__name__}")
    return state


class _NotPlainError(ValueError):
    """A file holds what no state of ours does."""


def _require_plain(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        pickles = [member for member in members if member.filename.endswith("data.pkl")]
        if any(
            member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size for member in members
        ):
            raise _NotPlainError(f"{path.name} holds compressed parts, which torch does not write")
        total, size = sum(member.file_size for member in members), path.stat().st_size
        if total > size or len({member.filename for member in members}) < len(members) or len(pickles) != 1:
            raise _NotPlainError(f"{path.name} holds parts of {total:,} bytes in a file of {size:,}, or one twice")
        for operation, argument, _ in pickletools.genops(archive.read(pickles[0])):
            if operation.name == "GLOBAL" and not _MAKERS.fullmatch(str(argument)):
                raise _NotPlainError(f"{path.name} holds more than tensors and plain values, got {str(argument)[:100]}")
            if operation.name in _CALLS:
                raise _NotPlainError(f"{path.name} holds more than tensors and plain values, got {operation.name}")
