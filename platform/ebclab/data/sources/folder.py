"""Image folders: every sub-folder is a class, every image's key is the hash of its path within the folder."""

from __future__ import annotations

import torch

from ebclab.data.class_labels import of_words
from ebclab.data.digests import digest_of_files
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Reading, first_example
from ebclab.data.sources.image_source import ImageFiles, RowIndex, Statistics
from ebclab.data.sources.location import files_of_split, folder_word, hash_of_path, splits_among
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
"""Suffixes of files that are read as images."""


class FolderSource(ImageFiles):
    """One split of an image folder; satisfies ``ImageSource``, with one image a group.

    Images in sub-folders get the first sub-folder's number among all in alphabetical order, others the label -1.

    Args:
        name: Dataset name.
        path: The folder, local or in an object store; may hold sub-folders train and test.
        split: Which part. Its classes are numbered alone, see ``open_source``.
        reading: How images are read.

    Attributes:
        parts_below: The first class that itself holds a training and a test part, which suggests that the user named
            the folder above the dataset; empty if there is none.

    Raises:
        DataError: There is no such folder, it holds no images, or the first of them does not decode.
    """

    statistics: Statistics | None = None

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        self.name, self.reading = name, reading
        self._place = Location(path)
        sizes = self._place.sizes(SUFFIXES)
        everything = list(sizes)
        if not everything:
            endings = ", ".join(SUFFIXES)
            raise DataError(f"data.name: no images in {self._place.path}, got no file that ends in {endings}")
        chosen = files_of_split(everything, split, name, folder_word)
        self._files = list(chosen)
        self.files_digest = digest_of_files({name: str(sizes[file]) for file, name in chosen.items()})
        labels = of_words(map(_class_of, chosen.values()))
        self.class_names = labels.names
        self.parts_below = _parts_below(list(chosen.values()))
        groups = torch.arange(len(chosen))
        keys = torch.tensor([hash_of_path(path) for path in chosen.values()])
        self.index = RowIndex(keys, labels.numbers, groups, torch.zeros_like(groups))
        self.example = first_example(self._contents(range(len(self._files))), reading, self._place.path)


def _parts_below(paths: list[str]) -> str:
    """Return the first class that holds a part for training and one for testing; empty if there is none."""
    inside: dict[str, list[str]] = {}
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths):  # far fewer than files
        name, _, rest = folder.partition("/")
        inside.setdefault(name, []).append(f"{rest}/")
    return next((name for name, rest in inside.items() if name and "test" in splits_among(rest, folder_word)), "")


def _class_of(path: str) -> str:
    """Return the first sub-folder of a path within its split; empty when the image lies in no sub-folder."""
    folder, slash, _ = path.partition("/")
    return folder if slash else ""
