"""Cache of features of frozen encoders, content-addressed by encoder and images, in memory and on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from ebclab.card.subject import Subject
from ebclab.data.digests import short_digest
from ebclab.data.image_set import ImageSet
from ebclab.errors import EbclabError
from ebclab.regular_file import read_regular
from ebclab.storage import atomic

_LARGEST = 16 << 30  # bytes of one file


class FeatureStore:
    """Cache of features by encoder and images.

    A file's name is the hash of the encoder's digest (see ``Subject``) and of the images, so a file is never stale. A
    file that cannot be read is computed again.

    Without a folder, features are kept in memory only.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, Tensor | EbclabError] = {}
        self._digests: dict[int, tuple[ImageSet, str]] = {}

    def name(self, subject: Subject, images: ImageSet) -> str:
        """Return the name of features: equal names mean the same encoder and the same images."""
        if id(images) not in self._digests:
            self._digests[id(images)] = (
                images,
                short_digest(images.images, images.keys),
            )  # keep the images, so that their id is not reused
        return hashlib.sha256(f"{subject.digest} {self._digests[id(images)][1]}".encode()).hexdigest()[:24]

    def known(self, name: str, count: int) -> Tensor | None:
        """Return the features (n, D) of ``count`` images from memory or disk; None if there are none."""
        if name not in self._known and (saved := self._read(name, count)) is not None:
            self._known[name] = saved
        known = self._known.get(name)
        if isinstance(known, EbclabError):
            raise known
        return known

    def keep(self, name: str, features: Tensor) -> None:
        """Store features in memory and, if there is a folder, on disk."""
        self._known[name] = features
        if self._folder is not None:
            atomic.make_folder(self._folder)
            content = to_bytes({"features": features, "sha256": _sum(features)})
            atomic.write_bytes(self._folder / f"{name}.safetensors", content)

    def lend(self, name: str, known: Tensor | EbclabError) -> None:
        """Add features of another process, in memory only, or the error if there are none."""
        self._known[name] = known

    def _read(self, name: str, count: int) -> Tensor | None:
        """Return saved features; None if there are none, or they are damaged."""
        if self._folder is None:
            return None
        path = self._folder / f"{name}.safetensors"
        try:
            saved = from_bytes(read_regular(path, _LARGEST))
            features, checksum = saved["features"], saved["sha256"]
        except (OSError, ValueError, KeyError, SafetensorError):
            return None
        is_whole = features.ndim == 2 and len(features) == count and torch.equal(checksum, _sum(features))
        return features if is_whole else None


def _sum(features: Tensor) -> Tensor:
    """Return the SHA-256 of features as a tensor (32,) uint8."""
    return torch.tensor(list(hashlib.sha256(features.numpy().tobytes()).digest()), dtype=torch.uint8)
