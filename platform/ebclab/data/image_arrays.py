"""Image sets as arrays, which processes on one machine can share without copies."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebclab.data.image_set import ImageSet


@dataclass(frozen=True)
class ImageArrays:
    """An ``ImageSet`` as arrays, which Ray holds once in the memory of each machine.

    Attributes:
        arrays: Pixels, labels and keys, and marks where there are any.
        facts: Name, class names, mean and standard deviation.
    """

    arrays: tuple[np.ndarray[Any, Any], ...]
    facts: tuple[Any, ...]

    @classmethod
    def of(cls, images: ImageSet) -> ImageArrays:
        """Return ``images`` as arrays, without copying."""
        tensors = (images.images, images.labels, images.keys, *([] if images.marks is None else [images.marks]))
        facts = (images.name, images.class_names, images.mean, images.std)
        return cls(tuple(tensor.contiguous().numpy() for tensor in tensors), facts)

    def image_set(self) -> ImageSet:
        """Return an image set over the same memory; do not write to it."""
        pixels, labels, keys, *marks = map(read_only, self.arrays)
        name, class_names, mean, std = self.facts
        return ImageSet(name, pixels, labels, keys, class_names, mean, std, marks[0] if marks else None)


def read_only(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor over the memory of an array that other processes share; do not write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
