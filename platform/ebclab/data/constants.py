"""Constants that a device needs for every batch: copied there once, because the host waits for every such copy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def constant(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor on a device. The tensor is cached: do not write to it.

    Args:
        values: Numbers, or rows of numbers.
    """
    return torch.tensor(values, dtype=dtype, device=device)
