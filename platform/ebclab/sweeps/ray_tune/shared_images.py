"""The images of a sweep, held once in the memory of each node."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ebclab.data.holdout import Split
from ebclab.data.image_set import ImageSet


@dataclass(frozen=True)
class SharedImages:
    """Images as arrays in Ray's object store, so that all trials of a node read the same memory.

    Attributes:
        arrays: Pixels, labels and keys of the training part, of the held-out part and, where images are kept for it,
            of what confirming runs are scored on.
        facts: Name, class names, mean and standard deviation of the ``ImageSet``.
        digest: Hash of the training part.
        content: Digest of all parts.
    """

    arrays: tuple[np.ndarray[Any, Any], ...]
    facts: tuple[Any, ...]
    digest: str
    content: str

    @classmethod
    def of(cls, split: Split) -> SharedImages:
        """Return ``split`` as arrays, without copying."""
        tensors = [t for part in split.parts for t in (part.images, part.labels, part.keys)]
        one = split.train
        return cls(
            tuple(t.contiguous().numpy() for t in tensors),
            (one.name, one.class_names, one.mean, one.std),
            split.digest,
            split.content,
        )

    def split(self) -> Split:
        """Return tensors over the same memory; they must not be written to."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            tensors = [torch.from_numpy(array) for array in self.arrays]
        name, class_names, mean, std = self.facts
        train, holdout, *confirm = (
            ImageSet(name, images, labels, keys, class_names, mean, std)
            for images, labels, keys in (tensors[first : first + 3] for first in range(0, len(tensors), 3))
        )
        return Split(train, holdout, self.digest, self.content, confirm[0] if confirm else None)
