"""Compatibility check and digest of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

WEIGHTS, DESCRIPTION = "model.safetensors", "encoder.json"
"""Files of an exported encoder that are required to use it."""

ENERGIES, HEADS = "energies.json", "energies.safetensors"
"""Files of an export that has energies of images: the method, and what it has beside its encoder."""


def differences(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], *, types: bool = False) -> list[str]:
    """Return a line for each tensor whose name or shape is not the expected one; empty if ``weights`` match.

    With ``types``, dtypes must match, too; otherwise tensors are converted on loading.
    """
    names = dict.fromkeys([*expected, *weights])
    return [line for name in names if (line := _difference(name, expected, weights, types))]


def first_of(differing: Sequence[str], most: int = 3) -> str:
    """Return the first of several differences, and how many more there are."""
    more = f" and {len(differing) - most} more" if len(differing) > most else ""
    return "; ".join(differing[:most]) + more


def _difference(name: str, expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], types: bool) -> str:
    if name not in weights:
        return f"no tensor {name}"
    if name not in expected:
        return f"an unknown tensor {name}"
    if weights[name].shape != expected[name].shape:
        return f"{name} of shape {tuple(weights[name].shape)} instead of {tuple(expected[name].shape)}"
    if types and weights[name].dtype != expected[name].dtype:
        return f"{name} of type {weights[name].dtype} instead of {expected[name].dtype}"
    return ""


def digest_of(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of weights in any order: of names, dtypes, shapes and bytes, whatever the file format."""
    found = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
