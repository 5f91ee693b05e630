"""Per-image correctness of a run's predictions, one bit per image, for paired comparisons of runs."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ebclab.evaluation.seeds_and_images import Table


@dataclass(frozen=True)
class Answers:
    """Per-image correctness of one run."""

    images: str  # short hash of the keys of the images, in order; equal hashes mean the same images
    num_images: int
    right: tuple[str, ...]  # packed bits in base64, 1 if correct; one string for each time that the probe was trained

    def __post_init__(self) -> None:
        if self.num_images < 1 or not self.right:
            raise ValueError(f"answers about {self.num_images} images, {len(self.right)} times")
        for text in self.right:
            try:
                num_bytes = len(base64.b64decode(text, validate=True))
            except binascii.Error as error:
                raise ValueError(f"answers that are not base64, got {text!r:.40}") from error
            if num_bytes != (self.num_images + 7) // 8:
                raise ValueError(f"answers about {self.num_images} images in {num_bytes} bytes")

    @classmethod
    def of(cls, right: Tensor, keys: Tensor) -> Answers:
        """Return answers (P, n) bool, one row for each time that the probe was trained, as packed bits."""
        packed = np.packbits(right.cpu().numpy(), axis=1)
        return cls(images_key(keys), len(keys), tuple(base64.b64encode(row.tobytes()).decode() for row in packed))

    def to_mapping(self) -> dict[str, Any]:
        """Return the answers as a dictionary of plain values."""
        return asdict(self) | {"right": list(self.right)}


def images_key(keys: Tensor) -> str:
    """Return a short hash of the keys (n,) of images; it depends on their order."""
    return hashlib.sha256(keys.contiguous().cpu().numpy().tobytes()).hexdigest()[:16]


def table_of(answers: Sequence[Answers]) -> Table:
    """Return the table of runs (rows) by images (columns): the fraction of probe trainings that were correct."""
    return np.stack([_shares(each) for each in answers])


def _shares(answers: Answers) -> Table:
    rows = [np.frombuffer(base64.b64decode(text), dtype=np.uint8) for text in answers.right]
    bits = np.unpackbits(np.stack(rows), axis=1, count=answers.num_images)  # (P, n)
    shares: Table = bits.mean(axis=0, dtype=np.float64)
    return shares
