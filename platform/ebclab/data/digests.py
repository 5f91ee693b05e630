"""Digests by which a run recognises its images: of their content or, for a stream, of its index and files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from torch import Tensor

from ebclab.data.image_set import ImageSet
from ebclab.errors import DataError

STREAMED = "stream-"
"""Prefix of the digest of a streamed dataset."""


def content_digest(train: ImageSet, *scored: ImageSet) -> str:
    """Return the SHA-256 of everything that a run uses of its images: pixels, labels, keys and marks of all parts.

    It covers channel statistics and class names, since views and scores depend on them, but not the dataset's name.
    """
    facts = {
        "class_names": train.class_names,
        "mean": train.mean,
        "std": train.std,
        "shapes": [tuple(part.images.shape) for part in (train, *scored)],
    }
    tensors = [t for part in (train, *scored) for t in (part.images, part.labels, part.keys, part.marks)]
    return _sha256(json.dumps(facts, sort_keys=True).encode(), [tensor for tensor in tensors if tensor is not None])


def stream_digest(*parts: tuple[Tensor, Tensor], class_names: tuple[str, ...], files_digest: str) -> str:
    """Return a digest of images that are not all read: keys and labels of all rows, and a digest of the files.

    The parts are training rows, held-out rows and, if there are any, those kept for confirming runs.
    """
    facts = {"class_names": class_names, "files": files_digest}
    start = json.dumps(facts, sort_keys=True).encode()
    return STREAMED + _sha256(start, [tensor for part in parts for tensor in part])


def short_digest(*tensors: Tensor) -> str:
    """Return a short hash of tensors: of the pixels and keys of images in memory, or of the keys and labels of rows."""
    return _sha256(b"", tensors)[:16]


def digest_of_files(files: Mapping[str, str | int]) -> str:
    """Return the SHA-256 over the names of unread files and their recorded checksums, or else their sizes."""
    return hashlib.sha256(json.dumps(sorted((name, str(each)) for name, each in files.items())).encode()).hexdigest()


def _sha256(start: bytes, tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256(start)
    for tensor in tensors:
        digest.update(tensor.contiguous().view(-1).numpy().data)
    return digest.hexdigest()


def require_digest(got: str, expected: str, name: str) -> None:
    """Check that images are those of the setting ``data.digest``, which is empty if unknown."""
    if not expected or got == expected:
        return
    if got.startswith(STREAMED) != expected.startswith(STREAMED):
        how, now = ("a stream", "resident") if expected.startswith(STREAMED) else ("resident", "a stream")
        raise DataError(
            f"data.digest: the images of {name} were {how} and are {now} now, which trains on other batches; "
            f"set data.delivery={'stream' if how == 'a stream' else 'resident'}"
        )
    raise DataError(
        f"data.digest: the images of {name} are not those that these settings were recorded with, "
        f"got {got[:20]}, expected {expected[:20]}; restore them, or leave data.digest out to start another run"
    )
