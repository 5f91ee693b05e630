"""The hash behind every draw, written with Python integers, and real datasets where there are any."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ebclab.data.image_set import ImageSet
from ebclab.data.sources.catalogue import DATASETS, Split, missing_files
from ebclab.data.sources.load import load_split

SHARED_DATA = Path(__file__).parents[4] / "shared" / "data"
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


@pytest.fixture(scope="session")
def real() -> Callable[[str, Split], ImageSet]:
    """Return a split of a dataset of the catalogue, from its real files; skip the test where there are none."""
    root = os.environ.get("EBCLAB_DATA") or str(SHARED_DATA)

    def loaded(name: str, split: Split) -> ImageSet:
        if missing_files(DATASETS[name], root, "train", "test"):
            pytest.skip(f"no real {name} below {root}")
        return load_split(name, root, split)

    return loaded
