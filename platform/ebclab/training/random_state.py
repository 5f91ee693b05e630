"""Keeps the states of all generators that other people's code may draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ebclab.hardware import draws_put_back


@contextmanager
def random_state_kept(device: torch.device | None = None) -> Iterator[None]:
    """Give the generators of Python, NumPy and torch back the states that they had before the block.

    Args:
        device: A device whose generator is kept beside that of the CPU; None for none.
    """
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with draws_put_back(device or torch.device("cpu")):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
