"""Datasets in their published layout: what must be where, and readers of the lists that come with images."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.image_source import ImageFiles, ImageSource, Listing
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

LARGEST_LIST = 64 << 20
"""Largest size of a file that lists images or classes, bytes; ImageNet's has 2.6 million."""

_FOLDERS_TRIED = 50

_log = logging.getLogger("ebclab.data")


@dataclass(frozen=True)
class Layout:
    """Facts about a published dataset. Of its files or folders in ``needs``, one must exist for it to be recognised."""

    name: str  # prefix of ``data.name``, without the colon
    image: str  # size of its images in words
    num_images: Mapping[Split, int]  # published number of images of each split
    needs: Mapping[Split, tuple[str, ...]]
    instructions: str  # which files to put where, for users
    source: Callable[[str, Location, Split, Reading], ImageSource]  # opens a split of the dataset called so

    def open(self, name: str, path: str, split: Split, reading: Reading) -> ImageSource:
        """Return one split of the dataset at ``path``; warns if it does not have the published number of images."""
        place = Location(path)
        if not place.has(""):
            raise DataError(f"data.name: no such folder, got {place.path}\n{self.instructions}")
        if not any(map(place.has, self.needs["train"])):
            near = _folder_nearby(place, self.needs["train"])
            hint = f"; did you mean {self.name}:{near}?" if near else ""
            absent = " or ".join(self.needs["train"])
            raise DataError(
                f"data.name: {self.name} does not lie in {place.path}, got no {absent}{hint}\n{self.instructions}"
            )
        if not any(map(place.has, self.needs[split])):
            absent = " or ".join(self.needs[split])
            raise DataError(
                f"data.name: {name} has no {split} images, got no {absent} in {place.path}\n{self.instructions}"
            )
        source = self.source(name, place, split, reading)
        if len(source.index) != self.num_images[split]:
            _tell_numbers(name, split, self.num_images[split], len(source.index))
        return source

    def splits(self, path: str) -> tuple[Split, ...]:
        """Return which splits the dataset at ``path`` has."""
        return ("train", "test") if any(map(Location(path).has, self.needs["test"])) else ("train",)


def listed_by(images_of: Callable[[Location, Split], Listing]) -> Callable[..., ImageSource]:
    """Return what opens a set with one file an image, of which ``images_of`` lists the images of a split."""

    def opened(name: str, place: Location, split: Split, reading: Reading) -> ImageSource:
        return ImageFiles(name, place, split, reading, images_of(place, split))

    return opened


@cache
def _tell_numbers(name: str, split: Split, published: int, got: int) -> None:
    """Log, once a process, that a split does not have the published number of images."""
    _log.warning("%s: %s %s images are published, got %s", name, f"{published:,}", split, f"{got:,}")


def _folder_nearby(place: Location, needs: tuple[str, ...]) -> str | None:
    """Return a folder in ``place``, or above it, that holds one of ``needs``; None if there is none."""
    for folder in islice(place.folders(), _FOLDERS_TRIED):
        if any(place.has(f"{folder}/{need}") for need in needs):
            return f"{place.path}/{folder}"
    above = Path(place.path).parent
    return str(above) if place.is_local and any((above / need).exists() for need in needs) else None


def bounded_file(place: Location, file: str, largest: int, kind: str = "a file") -> bytes:
    """Return the content of a file of at most ``largest`` bytes."""
    size = place.size(file)
    if size is None or size > largest:
        got = "none" if size is None else f"{size:,} bytes"
        raise DataError(
            f"{place.path}/{file}: {kind} of at most {largest:,} bytes is needed, got {got}; unpack it again"
        )
    return place.read(file)


def lines_of(place: Location, file: str) -> list[str]:
    """Return the lines of a file that lists images or classes, without blank ones."""
    content = bounded_file(place, file, LARGEST_LIST, "a list").decode(errors="replace")
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{place.path}/{file}: a list is needed, got an empty file; unpack it again")
    return lines


def require_files(place: Location, wanted: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the files that a list names, in its order, from those of all files."""
    if len(set(wanted)) < len(wanted):
        twice = Counter(wanted).most_common(1)[0][0]
        raise DataError(f"data.name: the list of images in {place.path} names {twice} twice; unpack the archive again")
    if absent := [file for file in wanted if file not in sizes]:
        raise DataError(
            f"data.name: {place.path} lacks {len(absent):,} images, got no {absent[0]}; unpack the archive again"
        )
    return {file: sizes[file] for file in wanted}


def numbered(class_names: tuple[str, ...], classes: list[str], where: str) -> list[int]:
    """Return the number of each image's class; ``where`` names the classes, for the message."""
    numbers = {name: number for number, name in enumerate(class_names)}
    if unknown := sorted(set(classes) - set(numbers)):
        raise DataError(f"{where}: an image must be of one of {len(numbers)} classes, got {unknown[0]!r:.80}")
    return [numbers[name] for name in classes]
