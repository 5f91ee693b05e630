"""The rows of a split that a preparation writes, and their source, which may be images in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ebclab.data.digests import content_digest, index_digest
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.decode import Decoded, Example, LeftOut, Reading
from ebclab.data.sources.image_source import ImageSource, RowIndex, Statistics, read_rows, training_statistics
from ebclab.hardware import usable_processors


class HeldImages:
    """Images in memory as an ``ImageSource`` with a single group; images left out on reading stay left out.

    Args:
        decoded: The images, and the rows of ``index`` that they belong to.
        index: Keys, labels and marks of all rows; its groups are ignored.
        statistics: Channel statistics of the training split.
        files_digest: Digest of the files that they come from.
        reading: How they were read.
    """

    def __init__(
        self,
        name: str,
        decoded: Decoded,
        index: RowIndex,
        class_names: tuple[str, ...],
        statistics: Statistics | None,
        files_digest: str,
        reading: Reading,
    ) -> None:
        channels, height, width = decoded.images.shape[1:]
        self.name, self.class_names, self.reading = name, class_names, reading
        self.statistics, self.files_digest = statistics, files_digest
        self.example = Example(name, (channels, height, width))
        rows = torch.arange(len(index))
        self.index = RowIndex(index.keys, index.labels, torch.zeros_like(rows), rows, index.marks)
        self._decoded = decoded
        self._place = decoded.good.cumsum(0) - 1  # position of a good row among the images
        self._left_out = dict(zip((~decoded.good).nonzero().flatten().tolist(), decoded.left_out, strict=True))

    def read(self, group: int, places: Tensor) -> Decoded:
        """Return the images of rows ``places``."""
        good = self._decoded.good[places]
        left_out = [self._left_out[row] for row in places[~good].tolist()]
        return Decoded(self._decoded.images[self._place[places[good]]], good, left_out)


@dataclass(frozen=True)
class SplitRows:
    """One split as it is written.

    Attributes:
        source: Source of its images.
        index: The rows to write.
        origin: Source of the whole split, for its statistics; None means ``source``.
    """

    source: ImageSource
    index: RowIndex
    origin: ImageSource | None = None

    @classmethod
    def of(cls, images: ImageSet) -> SplitRows:
        """Return all of a set in memory."""
        rows = torch.arange(len(images))
        decoded = Decoded(images.images, torch.ones(len(images), dtype=torch.bool), [])
        index = RowIndex(images.keys, images.labels, rows, rows, images.marks)
        statistics = Statistics(images.mean, images.std)
        source = HeldImages(
            images.name, decoded, index, images.class_names, statistics, content_digest(images), Reading()
        )
        return cls(source, source.index)

    @property
    def image_bytes(self) -> int:
        """Bytes of one image."""
        return math.prod(self.source.example.shape)

    @property
    def reads_groups(self) -> bool:
        """Whether reading one row reads its whole group, so that reading few rows at a time is slow."""
        return not isinstance(self.source, HeldImages) and len(set(self.index.groups.tolist())) < len(self.index)

    def held(self) -> SplitRows:
        """Return the same rows with their images in memory; each group of the source is read once."""
        source, index = self.source, self.index
        decoded = read_rows(source, index, threads=usable_processors())
        held = HeldImages(
            source.name, decoded, index, source.class_names, source.statistics, source.files_digest, source.reading
        )
        return SplitRows(held, held.index, source)

    def statistics(self) -> Statistics:
        """Return the channel statistics of the whole split that rows were chosen from."""
        return training_statistics(self.origin or self.source)

    def facts(self) -> dict[str, object]:
        """Return the facts on which the written split depends."""
        return {
            "images": len(self.index),
            "index": index_digest(self.index.keys, self.index.labels),
            "files": self.source.files_digest,
        }


def left_out_lines(split: str, left_out: list[LeftOut]) -> list[dict[str, str]]:
    """Return an entry for each image in the list of those left out."""
    return [{"split": split, "name": each.name, "kind": each.kind, "reason": each.reason} for each in left_out]
