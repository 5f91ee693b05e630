"""Compatibility check and digest of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

WEIGHTS, DESCRIPTION = "model.safetensors", "encoder.json"
"""Files of an exported encoder that are required to use it."""

ENERGIES, HEADS = "energies.json", "energies.safetensors"
"""Files of an export that has energies of images: the method, and what it has beside its encoder."""


def differences(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], *, types: bool = False) -> list[str]:
    """Return a line for each tensor whose name or shape is not the expected one; empty if ``weights`` match.

    Args:
        expected: ``state_dict`` of the network.
        weights: Weights to load into it.
        types: Whether dtypes must match, too; otherwise tensors are converted on loading.
    """
    names = dict.fromkeys([*expected, *weights])
    return [line for name in names if (line := _difference(name, expected, weights, types))]


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
    """Return the SHA-256 of weights: of names, dtypes, shapes and bytes, independent of the file format.

    Args:
        weights: ``state_dict`` of an encoder, in any order.
    """
    found = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
