"""Datasets in their published layout: their files, and the source for those that consist of image files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import torch

from ebclab.data.digests import digest_of_files
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Reading, first_example
from ebclab.data.sources.image_source import ImageFiles, ImageSource, RowIndex, Statistics
from ebclab.data.sources.location import hash_of_path
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

LARGEST_LIST = 64 << 20
"""Largest size of a file that lists images or classes, bytes; ImageNet's has 2.6 million."""

_FOLDERS_TRIED = 50

_log = logging.getLogger("ebclab.data")


@dataclass(frozen=True)
class Layout:
    """Facts about a published dataset.

    Attributes:
        name: Prefix of ``data.name``, without the colon.
        image: Size of its images in words.
        num_images: Published number of images of each split.
        needs: Files or folders; one of them must exist for the dataset to be recognised.
        test_needs: The same for test images.
        instructions: Which files to put where, for users.
        open: Opens a split, given name, path, split and reading.
    """

    name: str
    image: str
    num_images: Mapping[Split, int]
    needs: tuple[str, ...]
    test_needs: tuple[str, ...]
    instructions: str
    open: Callable[[str, str, Split, Reading], ImageSource]


@dataclass(frozen=True)
class Listing:
    """The images of a split according to the files of a published dataset.

    Attributes:
        sizes: Size of each image's file in bytes, by its path below the dataset's folder.
        names: Name of each image, independent of its folder; its key is the hash of the name.
        labels: Class number of each image.
        class_names: Names of the classes, by label.
    """

    sizes: Mapping[str, int]
    names: list[str]
    labels: list[int]
    class_names: tuple[str, ...]


class ListedImages(ImageFiles):
    """One split of a published set of image files; satisfies ``ImageSource``, with one image a group.

    Args:
        path: The set's folder, local or in an object store.
        reading: How images are read.
        listed: Returns the images of a split.
    """

    statistics: Statistics | None = None

    def __init__(
        self, name: str, path: str, split: Split, reading: Reading, *, listed: Callable[[Location, Split], Listing]
    ) -> None:
        self.name, self.reading = name, reading
        self._place = Location(path)
        listing = listed(self._place, split)
        self._files, self.class_names = list(listing.sizes), listing.class_names
        if not self._files:
            raise DataError(f"data.name: {name} has no {split} images, got none in {self._place.path}; unpack it again")
        self.files_digest = digest_of_files({file: str(size) for file, size in listing.sizes.items()})
        groups, keys = torch.arange(len(self._files)), torch.tensor([hash_of_path(each) for each in listing.names])
        if len(torch.unique(keys)) < len(keys):
            twice = Counter(listing.names).most_common(1)[0][0]
            raise DataError(f"data.name: {name} has two {split} images called {twice}; unpack it again")
        self.index = RowIndex(keys, torch.tensor(listing.labels), groups, torch.zeros_like(groups))
        self.example = first_example(self._contents(range(len(self._files))), reading, self._place.path)


def open_layout(layout: Layout, name: str, path: str, split: Split, reading: Reading) -> ImageSource:
    """Return one split of a published dataset; warns if it does not have the published number of images.

    Args:
        path: Its folder, local or in an object store.
        reading: How images are read.
    """
    place = Location(path)
    if not place.has(""):
        raise DataError(f"data.name: no such folder, got {place.path}\n{layout.instructions}")
    if not any(map(place.has, layout.needs)):
        near = _folder_nearby(place, layout)
        hint = f"; did you mean {layout.name}:{near}?" if near else ""
        got = " or ".join(layout.needs)
        raise DataError(
            f"data.name: {layout.name} does not lie in {place.path}, got no {got}{hint}\n{layout.instructions}"
        )
    if split == "test" and not any(map(place.has, layout.test_needs)):
        got = " or ".join(layout.test_needs)
        raise DataError(f"data.name: {name} has no test images, got no {got} in {place.path}\n{layout.instructions}")
    source = layout.open(name, path, split, reading)
    if len(source.index) != layout.num_images[split]:
        _tell_numbers(name, split, layout.num_images[split], len(source.index))
    return source


@cache
def _tell_numbers(name: str, split: Split, published: int, got: int) -> None:
    """Log, once a process, that a split does not have the published number of images."""
    _log.warning("%s: %s %s images are published, got %s", name, f"{published:,}", split, f"{got:,}")


def splits_of_layout(layout: Layout, path: str) -> tuple[Split, ...]:
    """Return which splits a published dataset at ``path`` has."""
    return ("train", "test") if any(map(Location(path).has, layout.test_needs)) else ("train",)


def lines_of(place: Location, file: str) -> list[str]:
    """Return the lines of a file that lists images or classes, without blank ones."""
    size = place.size(file)
    if size is None or size > LARGEST_LIST:
        got = "none" if size is None else f"{size:,} bytes"
        raise DataError(f"{place.path}/{file}: a list of at most {LARGEST_LIST:,} bytes is needed, got {got}")
    lines = [line.strip() for line in place.read(file).decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{place.path}/{file}: a list is needed, got an empty file; unpack it again")
    return lines


def require_files(place: Location, wanted: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the files that a list names, in its order.

    Args:
        place: The set's folder.
        sizes: Sizes of the files that are there, by path.
    """
    if len(set(wanted)) < len(wanted):
        twice = Counter(wanted).most_common(1)[0][0]
        raise DataError(f"data.name: the list of images in {place.path} names {twice} twice; unpack the archive again")
    if absent := [file for file in wanted if file not in sizes]:
        raise DataError(
            f"data.name: {place.path} lacks {len(absent):,} images, got no {absent[0]}; unpack the archive again"
        )
    return {file: sizes[file] for file in wanted}


def numbered(class_names: tuple[str, ...], classes: list[str], where: str) -> list[int]:
    """Return the number of each image's class.

    Args:
        class_names: Names of the classes, by label.
        classes: The class of each image.
        where: What names the classes, for the message.
    """
    numbers = {name: number for number, name in enumerate(class_names)}
    if unknown := sorted(set(classes) - set(numbers)):
        raise DataError(f"{where}: an image must be of one of {len(numbers)} classes, got {unknown[0]!r:.80}")
    return [numbers[name] for name in classes]


def _folder_nearby(place: Location, layout: Layout) -> str | None:
    """Return a folder in ``place``, or above it, that holds the dataset; None if there is none."""
    for folder in islice(place.folders(), _FOLDERS_TRIED):
        if any(place.has(f"{folder}/{need}") for need in layout.needs):
            return f"{place.path}/{folder}"
    above = Path(place.path).parent
    if place.is_local and any((above / need).exists() for need in layout.needs):
        return str(above)
    return None
