"""STL-10 (Coates, Ng and Lee, 2011): 96x96 colour images in binary files, column by column.

An image is 3 planes of 96 columns of 96 bytes, so that the axes of a plane must be exchanged. Labels are bytes from 1
to 10. ``stl10:`` is the labelled part. ``stl10-unlabelled:`` trains on the 100,000 unlabelled images and then the 5,000
training images, none with a label; its test images are the same.
"""

from __future__ import annotations

import pyarrow as pa
import torch
from torch import Tensor

from ebclab.data.digests import digest_of_files
from ebclab.data.hashing import hash_words
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Decoded, Example, Reading
from ebclab.data.sources.image_source import ImageSource, RowIndex
from ebclab.data.sources.location import hash_of_path
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

TRAIN, TEST, UNLABELLED = "train_X.bin", "test_X.bin", "unlabeled_X.bin"
"""Files of images."""

_SHAPE = (3, 96, 96)
_IMAGE_BYTES = 3 * 96 * 96


class Stl10Source(ImageSource):
    """One split of STL-10; each image is a group. If ``unlabelled``, all images but those for tests train."""

    class_names = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")

    def __init__(self, name: str, place: Location, split: Split, reading: Reading, *, unlabelled: bool = False) -> None:
        self.name, self.reading, self._place = name, reading, place
        if reading.resize:
            raise DataError(
                f"data.resize: the images of {name} are bytes of 96x96 pixels and keep their size, got "
                f"{reading.resize}; leave it out, views.image_size sets the size of views"
            )
        labelled = TRAIN if split == "train" else TEST
        files = [UNLABELLED, TRAIN] if unlabelled and split == "train" else [labelled]
        counts = {file: self._count(file) for file in files}
        self._rows = [(file, row) for file, count in counts.items() for row in range(count)]
        self.files_digest = digest_of_files({file: str(count * _IMAGE_BYTES) for file, count in counts.items()})
        self.index = RowIndex.grouped(
            torch.cat([hash_words(hash_of_path(file), torch.arange(count)) for file, count in counts.items()]),
            torch.full((len(self._rows),), -1) if len(files) > 1 else self._labels(labelled, counts[labelled]),
        )
        self.example = Example(f"{place.path}/{files[0]}", _SHAPE)

    def read(self, group: int, places: Tensor) -> Decoded:
        file, row = self._rows[group]
        try:
            with self._place.filesystem.open_input_file(self._place.inner_path(file)) as opened:
                content = opened.read_at(_IMAGE_BYTES, row * _IMAGE_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise self._place.storage_error(error, file) or self._damage(file, error) from error
        if len(content) != _IMAGE_BYTES:
            raise self._damage(file, f"{len(content)} bytes of image {row}")
        image = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(_SHAPE).mT
        return Decoded(image.expand(len(places), *_SHAPE), torch.ones(len(places), dtype=torch.bool), [])

    def sizes(self, rows: Tensor) -> list[tuple[int, int]]:
        return []

    def _count(self, file: str) -> int:
        size = self._place.size(file)
        if not size or size % _IMAGE_BYTES:
            got = "none" if size is None else f"{size:,} bytes"
            raise self._damage(file, f"{got}, expected a multiple of {_IMAGE_BYTES:,}")
        return size // _IMAGE_BYTES

    def _labels(self, images: str, count: int) -> Tensor:
        """Return the labels (n,) of a file of images, from 0."""
        file = images.replace("_X", "_y")
        size = self._place.size(file)
        if size != count:
            got = "none" if size is None else f"{size:,} bytes"
            raise self._damage(file, f"{got}, expected a label for each of {count:,} images")
        labels = torch.frombuffer(bytearray(self._place.read(file)), dtype=torch.uint8).long() - 1
        low, high, most = int(labels.min()) + 1, int(labels.max()) + 1, len(self.class_names)
        if low < 1 or high > most:
            raise self._damage(file, f"labels from {low} to {high}, expected 1 to {most}")
        return labels

    def _damage(self, file: str, got: object) -> DataError:
        where = self._where(file)
        return DataError(f"{where}: not a file of STL-10, got {got}; unpack stl10_binary.tar.gz again")
