"""Features of frozen encoders, computed once for each encoder and set of images and kept on disk by content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from ebclab.card.subject import Subject
from ebclab.data.holdout import data_digest
from ebclab.data.image_set import ImageSet
from ebclab.errors import EbclabError
from ebclab.evaluation.features import compute_features
from ebclab.evaluation.progress import OnProgress
from ebclab.regular_file import read_regular
from ebclab.storage import atomic

_LARGEST = 16 << 30  # bytes of one file


class FeatureStore:
    """Features by encoder and images.

    A file's name is the hash of the encoder's digest (see ``Subject``) and the images: whatever changes one of them
    changes the name, so a file is never out of date. One that cannot be read is computed again.

    Args:
        folder: Where the files lie; None keeps features in memory alone.
        device: Where features are computed.
        batch_size: Images per forward pass.
    """

    def __init__(self, folder: Path | None, device: torch.device, batch_size: int) -> None:
        self._folder, self._device, self._batch_size = folder, device, batch_size
        self._known: dict[str, Tensor | EbclabError] = {}
        self._digests: dict[int, tuple[ImageSet, str]] = {}

    def features(self, subject: Subject, images: ImageSet, on_progress: OnProgress) -> Tensor:
        """Return the embeddings (n, D) float32 on the CPU of ``images``, in their order.

        Raises:
            DataError: The images do not fit the encoder.
            DivergedError: The encoder gives NaN or infinity.
        """
        name = self.name(subject, images)
        if (known := self.known(name, len(images))) is None:
            known = self._compute(subject, images, on_progress)
            self.keep(name, known)
        return known

    def name(self, subject: Subject, images: ImageSet) -> str:
        """Return what features are called: the same name means the same encoder and the same images."""
        if id(images) not in self._digests:
            self._digests[id(images)] = (images, data_digest(images))  # the images too: their id stays taken
        return hashlib.sha256(f"{subject.digest} {self._digests[id(images)][1]}".encode()).hexdigest()[:24]

    def known(self, name: str, count: int) -> Tensor | None:
        """Return the features (n, D) of ``count`` images that are in memory or on disk; None where there are none.

        Raises:
            EbclabError: Another process could not compute them.
        """
        if name not in self._known and (saved := self._read(name, count)) is not None:
            self._known[name] = saved
        known = self._known.get(name)
        if isinstance(known, EbclabError):
            raise known
        return known

    def keep(self, name: str, features: Tensor) -> None:
        """Keep features in memory and on disk.

        Raises:
            OSError: The disk refuses.
        """
        self._known[name] = features
        if self._folder is not None:
            atomic.make_folder(self._folder)
            content = to_bytes({"features": features, "sha256": _sum(features)})
            atomic.write_bytes(self._folder / f"{name}.safetensors", content)

    def lend(self, found: Mapping[str, Tensor | EbclabError]) -> None:
        """Take over, in memory alone, what other processes computed: features by name, or why there are none."""
        self._known |= found

    def _compute(self, subject: Subject, images: ImageSet, on_progress: OnProgress) -> Tensor:
        return compute_features(
            subject.encoder.to(self._device),
            images.images,
            subject.preprocessing,
            batch_size=self._batch_size,
            device=self._device,
            on_progress=on_progress,
            what=f"features of {len(images):,} images of {images.name}",
        )

    def _read(self, name: str, count: int) -> Tensor | None:
        """Return saved features; None where there are none, or they are damaged."""
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
    """Return the SHA-256 of features as a tensor (32,) of bytes."""
    return torch.tensor(list(hashlib.sha256(features.numpy().tobytes()).digest()), dtype=torch.uint8)
