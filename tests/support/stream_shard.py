"""A worker's part of a stream, without Ray."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from ebclab.data.image_set import ImageSet


class Shard:
    """What a ``ray.data.DataIterator`` is to one rank: each call of ``iter_batches`` is an epoch in another order.

    Rank r of W has every W-th image, from the r-th on.
    """

    def __init__(self, images: ImageSet, *, first_epoch: int = 0, rank: int = 0, world_size: int = 1) -> None:
        self._images, self._epoch, self._rank, self._world_size = images, first_epoch, rank, world_size

    def order(self, epoch: int) -> torch.Tensor:
        """Return this rank's rows in the order of an epoch."""
        order = torch.randperm(len(self._images), generator=torch.Generator().manual_seed(epoch))
        return order[self._rank :: self._world_size]

    def iter_batches(self, *, batch_size: int, **_: Any) -> Iterator[pa.Table]:
        """Yield tables of ``batch_size`` rows; an incomplete last one is dropped."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        order = self.order(epoch)
        for first in range(0, len(order) - batch_size + 1, batch_size):
            rows = order[first : first + batch_size]
            pixels = self._images.images[rows].numpy()
            yield pa.table(
                {
                    "epoch": np.full(batch_size, epoch),
                    "row": rows.numpy(),
                    "label": self._images.labels[rows].numpy(),
                    "key": self._images.keys[rows].numpy(),
                    "image": pa.FixedShapeTensorArray.from_numpy_ndarray(pixels),
                }
            )
