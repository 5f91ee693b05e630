"""The hash behind every draw, written with Python integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

MASK = (1 << 64) - 1


@pytest.fixture(scope="session")
def splitmix64_words() -> Callable[..., int]:
    """Hash words one by one: output number ``word`` of SplitMix64, seeded with the hash so far, as a signed integer."""

    def hashed(*words: int) -> int:
        state = 0
        for word in words:
            state = (state + (word + 1) * 0x9E3779B97F4A7C15) & MASK
            state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
            state ^= state >> 31
        return state - (1 << 64) if state >> 63 else state

    return hashed
