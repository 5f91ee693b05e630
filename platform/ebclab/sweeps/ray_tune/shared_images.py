"""The images of a sweep, stored once in the memory of each node."""

from __future__ import annotations

from dataclasses import dataclass

from ebclab.data.holdout import Split
from ebclab.data.image_set import ImageArrays


@dataclass(frozen=True)
class SharedImages:
    """Images as arrays in Ray's object store, so that all trials of a node read the same memory."""

    # the training part, the held-out part and, if there are any, the images that only confirming runs are scored on
    parts: tuple[ImageArrays, ...]
    digest: str  # hash of the training part
    content: str  # digest of all parts

    @classmethod
    def of(cls, split: Split) -> SharedImages:
        """Return ``split`` as arrays, without copying."""
        return cls(tuple(map(ImageArrays.of, split.parts)), split.digest, split.content)

    def split(self) -> Split:
        """Return tensors over the same memory; do not write to them."""
        train, holdout, *confirm = (part.image_set() for part in self.parts)
        return Split(train, holdout, self.digest, self.content, confirm[0] if confirm else None)
