"""Image folders: every sub-folder is a class, every image's key is the hash of its path within the folder."""

from __future__ import annotations

from collections import Counter
from posixpath import splitext

from ebclab.data.class_labels import of_words
from ebclab.data.digests import digest_of_files
from ebclab.data.photograph import image_suffixes
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.image_source import ImageFiles, Listing
from ebclab.data.sources.label_tables import TABLES, labels_in_tables
from ebclab.data.sources.location import (
    files_of_split,
    folder_word,
    folders_with_parts,
    hash_of_path,
    is_by_product,
    is_split,
    location_of,
    splits_among,
    tell_once,
)
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_SHOWN = 10  # suffixes in a message
_REMEDIES = {
    ".zip": "unpack it",
    ".gz": "unpack it",
    ".tgz": "unpack it",
    ".tar": "read tars by webdataset:PATH",
    ".parquet": "read Parquet by parquet:PATH",
    ".arrow": "read Arrow by arrow:PATH",
    ".npz": "give arrays to ebclab.pretrain(images=...) in Python",
    ".npy": "give arrays to ebclab.pretrain(images=...) in Python",
}


class FolderSource(ImageFiles):
    """One split of an image folder, local or in an object store, which may hold sub-folders train and test.

    Images have the labels of a table; without one, images in sub-folders get the first sub-folder's number among all in
    alphabetical order, others the label -1.
    """

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        place = Location(path)
        sizes, tables, others = _files_in(place, reading.labels)
        if not sizes:
            remedies = [way for suffix, way in _REMEDIES.items() if f" {suffix}" in others]
            raise DataError(
                f"data.name: no images in {place.path}, got no file that ends in .png, .jpg or another suffix "
                f"that Pillow decodes{f', only {others}' if others else ''}; "
                f"{remedies[0] if remedies else 'give the folder that holds the images'}"
            )
        if others:
            hint = "; data.labels=FILE reads labels from a table" if " .csv" in others and not reading.labels else ""
            tell_once(f"{name}: files that are not read as images were left out: {others}{hint}")
        chosen = files_of_split(list(sizes), split, name, folder_word)
        if list(chosen.values()) == list(sizes):  # there are no splits
            _require_no_parts_below(list(chosen), name)
            if doubtful := sorted({top for file in chosen if is_split(top := folder_word(file))}):
                tell_once(
                    f"{name}: {' and '.join(doubtful)} are read as classes, since the other folders are not splits"
                )
        labels = labels_in_tables(name, place, tables, sizes, chosen, reading) or of_words(
            path.partition("/")[0] if "/" in path else "" for path in chosen.values()
        )
        listing = Listing({file: sizes[file] for file in chosen}, [*chosen.values()], labels.numbers, labels.names)
        super().__init__(name, place, split, reading, listing)
        self.files_digest = digest_of_files({path: str(sizes[file]) for file, path in chosen.items()})


def folder_splits(path: str) -> tuple[Split, ...]:
    """Return which splits the images in a folder have."""
    return splits_among(list(_files_in(Location(path))[0]), folder_word)


def files_by_key(name: str, split: Split) -> dict[int, str]:
    """Return the path within its folder of each image of a split by its key; empty for datasets of other kinds."""
    found = location_of(name)
    if found is None or found[0] != "folder":
        return {}
    files = list(_files_in(Location(found[1]))[0])
    there = splits_among(files, folder_word)
    chosen = files_of_split(files, split if split in there else "train", name, folder_word)
    return {hash_of_path(path): file for file, path in chosen.items()}


def _files_in(place: Location, labels: str = "") -> tuple[dict[str, int], list[str], str]:
    """Return the sizes in bytes of the images in a folder by path, tables of labels, and in words the other files."""
    images, tables, others, suffixes = dict[str, int](), [labels] if labels else [], Counter[str](), image_suffixes()
    for file, size in place.sizes(("",)).items():
        path = file or place.path
        if is_by_product(file):
            others["in folders of thumbnails or deleted files"] += 1
        elif path.lower().endswith(suffixes):
            images[file] = size
        elif file.rpartition("/")[2].lower() in TABLES and not labels:
            tables.append(file)
        elif labels and file == labels:
            continue
        else:
            others[splitext(path)[1].lower()[:_SHOWN] or "without a suffix"] += 1
    shown = [f"{times:,} {suffix}" for suffix, times in others.most_common(_SHOWN)]
    more = len(others) - len(shown)
    return images, tables, ", ".join([*shown, *([f"and {more:,} other suffixes"] if more else [])])


def _require_no_parts_below(files: list[str], name: str) -> None:
    """Refuse classes that hold a part for training and one for tests, all of which would be training images."""
    folders = list(dict.fromkeys(file.rpartition("/")[0] for file in files))  # far fewer than files
    if both := folders_with_parts(folders):
        alone = len({folder.partition("/")[0] for folder in folders}) == 1
        hint = f"give {name.rstrip('/')}/{both[0]}" if alone else "put the classes into PATH/train and PATH/test"
        raise DataError(
            f"data.name: {name} has test images in its class {both[0]}, got folders train and test in it; {hint}"
        )
