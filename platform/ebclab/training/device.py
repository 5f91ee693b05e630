"""Which device a run uses."""

from __future__ import annotations

import os

import torch

from ebclab.errors import UserError


def resolve_device(name: str, *, deterministic: bool = False) -> torch.device:
    """Return the device of the setting ``resources.device``.

    Args:
        name: "auto" (a GPU when there is one), "cpu" or "cuda".
        deterministic: On a GPU, refuse kernels whose result depends on timing.

    Raises:
        UserError: A GPU was asked for and there is none.
    """
    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise UserError("resources.device: no CUDA GPU is visible to torch here, got cuda; use auto or cpu")
    if name == "cpu" or not found:
        return torch.device("cpu")
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=False)
    return torch.device("cuda")
