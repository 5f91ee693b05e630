"""Groups of images that share the random numbers of their views.

Shapes: B images.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words

_BATCH_SALT = 0x6261746368  # sets the words of batches and of chunks apart
_CHUNK_SALT = 0x6368756E6B
_DRAWN_TOGETHER = 256  # images of a fresh draw that share a word, as when EBCLR's released code fills its buffer


def words_of_batch(config: ViewsConfig, rows: Tensor, *, position: int, batch_size: int) -> Tensor | None:
    """Return a word (B,) int64 for each image of a batch; images of the same word share the parameters of their views.

    The words do not depend on ranks: an image gets the same word on any rank.

    Args:
        config: Final view settings.
        rows: (B,) int64 rows of the training set, of all or some images of the global batch.
        position: Number of the batch within its epoch.
        batch_size: Global batch size, images.

    Returns:
        The words, or None when no two images share anything.
    """
    if config.shared_by == "image":
        return None
    if config.shared_by == "batch":
        return rows.new_full(rows.shape, int(hash_words(_BATCH_SALT, position)))
    return hash_words(_CHUNK_SALT, rows // batch_size)


def words_of_draw(config: ViewsConfig, keys: Tensor) -> Tensor | None:
    """Return words (B,) for images that were drawn at random with ``keys`` (B,) of their own: 256 at a time share one.

    None when no two images share anything.
    """
    if config.shared_by == "image":
        return None
    first = torch.arange(len(keys), device=keys.device) // _DRAWN_TOGETHER * _DRAWN_TOGETHER
    return keys[first]
