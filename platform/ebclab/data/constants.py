"""Numbers that a device needs for every batch: sent there once, because the host waits for each that it sends."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def constant(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor of a device, the same one each time: nobody may write to it.

    Args:
        values: Numbers, or rows of numbers.
        dtype: Their type.
        device: Where they are wanted.
    """
    return torch.tensor(values, dtype=dtype, device=device)
