"""Protects the random state of a run from code that may draw random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ebclab.hardware import draws_put_back


@contextmanager
def random_state_kept(device: torch.device | None = None) -> Iterator[None]:
    """Restore the states of the generators of Python, NumPy and torch after the block.

    Args:
        device: A device whose generator is restored too, beside the CPU's; None for none.
    """
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with draws_put_back(device or torch.device("cpu")):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
