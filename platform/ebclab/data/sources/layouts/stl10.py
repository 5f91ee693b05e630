"""STL-10 (Coates, Ng and Lee, 2011): 96x96 colour images in binary files, column by column.

An image is 3 planes of 96 columns of 96 bytes, so that the axes of a plane must be exchanged. Labels are bytes from 1
to 10. ``stl10:`` is the labelled part. ``stl10-unlabelled:`` trains on the 100,000 unlabelled images and then the 5,000
training images, none with a label; its test images are the same.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import torch
from torch import Tensor

from ebclab.data.digests import digest_of_files
from ebclab.data.hashing import hash_words
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Decoded, Example, Reading
from ebclab.data.sources.image_source import RowIndex, Statistics
from ebclab.data.sources.layouts.layout import Layout
from ebclab.data.sources.location import hash_of_path
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")

_SHAPE = (3, 96, 96)
_IMAGE_BYTES = 3 * 96 * 96
_TRAIN, _TEST, _UNLABELLED = "train_X.bin", "test_X.bin", "unlabeled_X.bin"


class Stl10Source:
    """One split of STL-10; satisfies ``ImageSource``, with one image a group.

    Args:
        path: The folder that holds the binary files, local or in an object store.
        reading: How images are read; they keep their size and colours.
        unlabelled: Train on the unlabelled images and the training images, without labels.
    """

    statistics: Statistics | None = None
    class_names: tuple[str, ...] = CLASSES

    def __init__(self, name: str, path: str, split: Split, reading: Reading, *, unlabelled: bool = False) -> None:
        self.name, self.reading = name, reading
        self._place = Location(path)
        if reading.resize:
            raise DataError(
                f"data.resize: the images of {name} are bytes of 96x96 pixels and keep their size, got "
                f"{reading.resize}; leave it out, views.image_size sets the size of views"
            )
        labelled = _TRAIN if split == "train" else _TEST
        files = [_UNLABELLED, _TRAIN] if unlabelled and split == "train" else [labelled]
        counts = {file: self._count(file) for file in files}
        self._places = [(file, row) for file, count in counts.items() for row in range(count)]
        self.files_digest = digest_of_files({file: str(count * _IMAGE_BYTES) for file, count in counts.items()})
        groups = torch.arange(len(self._places))
        self.index = RowIndex(
            keys=torch.cat([hash_words(hash_of_path(file), torch.arange(count)) for file, count in counts.items()]),
            labels=torch.full_like(groups, -1) if len(files) > 1 else self._labels(labelled, counts[labelled]),
            groups=groups,
            places=torch.zeros_like(groups),
        )
        self.example = Example(f"{self._place.path}/{files[0]}", _SHAPE)

    def read(self, group: int, places: Tensor) -> Decoded:
        """Return image number ``group``, once for each of ``places``."""
        file, row = self._places[group]
        try:
            with self._place.filesystem.open_input_file(self._place.inner_path(file)) as opened:
                content = opened.read_at(_IMAGE_BYTES, row * _IMAGE_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise self._place.storage_error(error, file) or _cut(f"{self._place.path}/{file}", error) from error
        if len(content) != _IMAGE_BYTES:
            raise _cut(f"{self._place.path}/{file}", f"{len(content)} bytes of image {row}")
        image = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(_SHAPE).mT
        return Decoded(image.expand(len(places), *_SHAPE), torch.ones(len(places), dtype=torch.bool), [])

    def _count(self, file: str) -> int:
        """Return how many images a file holds."""
        size = self._place.size(file)
        if not size or size % _IMAGE_BYTES:
            got = "none" if size is None else f"{size:,} bytes"
            raise _cut(f"{self._place.path}/{file}", f"{got}, expected a multiple of {_IMAGE_BYTES:,}")
        return size // _IMAGE_BYTES

    def _labels(self, images: str, count: int) -> Tensor:
        """Return the labels (n,) of a file of images, from 0."""
        file = images.replace("_X", "_y")
        if self._place.size(file) != count:
            got = "none" if self._place.size(file) is None else f"{self._place.size(file):,} bytes"
            raise _cut(f"{self._place.path}/{file}", f"{got}, expected a label for each of {count:,} images")
        labels = torch.frombuffer(bytearray(self._place.read(file)), dtype=torch.uint8).long() - 1
        if int(labels.min()) < 0 or int(labels.max()) >= len(CLASSES):
            got = f"labels from {int(labels.min()) + 1} to {int(labels.max()) + 1}, expected 1 to {len(CLASSES)}"
            raise _cut(f"{self._place.path}/{file}", got)
        return labels


def _cut(where: str, got: object) -> DataError:
    return DataError(f"{where}: not a file of STL-10, got {got}; unpack stl10_binary.tar.gz again")


_INSTRUCTIONS = """\
Unpack http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz; PATH is stl10_binary in it, with
  train_X.bin, train_y.bin, test_X.bin, test_y.bin, unlabeled_X.bin"""

STL10 = Layout(
    name="stl10",
    image="96x96x3",
    num_images={"train": 5_000, "test": 8_000},
    needs=(_TRAIN,),
    test_needs=(_TEST,),
    instructions=_INSTRUCTIONS,
    open=Stl10Source,
)

STL10_UNLABELLED = Layout(
    name="stl10-unlabelled",
    image="96x96x3",
    num_images={"train": 105_000, "test": 8_000},
    needs=(_UNLABELLED,),
    test_needs=(_TEST,),
    instructions=f"The folder of stl10, trained on without labels, {_UNLABELLED} and then {_TRAIN}.",
    open=partial(Stl10Source, unlabelled=True),
)
