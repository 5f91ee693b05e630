"""What is written of a split: which rows of which source; images in memory are a source, too."""

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
    """Images in memory as an ``ImageSource`` of one group; those that were left out are left out again.

    Args:
        name: Dataset name.
        decoded: The images, and which rows of ``index`` they are.
        index: Keys, labels and marks of all rows; its groups do not matter.
        class_names: Names of the classes.
        statistics: Those of the training split.
        files_digest: What is known of where they come from.
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
        self._place = decoded.good.cumsum(0) - 1  # of a good row among the images
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
        source: Where its images come from.
        index: Those of its rows that are written.
        origin: Source of the whole split, from which statistics are computed; None: ``source``.
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
        """Whether rows share groups of which all is read for one of them, so that few rows at a time cost much."""
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
        """Return what two preparations must have in common to write the same split."""
        return {
            "images": len(self.index),
            "index": index_digest(self.index.keys, self.index.labels),
            "files": self.source.files_digest,
        }


def left_out_lines(split: str, left_out: list[LeftOut]) -> list[dict[str, str]]:
    """Return what the list of images that were left out says of each."""
    return [{"split": split, "name": each.name, "kind": each.kind, "reason": each.reason} for each in left_out]
