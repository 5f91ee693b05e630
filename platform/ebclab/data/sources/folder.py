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
from ebclab.data.sources.location import (
    files_of_split,
    folder_word,
    is_by_product,
    is_split,
    splits_among,
    tell_once,
    word_for,
)
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_SHOWN = 10  # suffixes in a message


class FolderSource(ImageFiles):
    """One split of an image folder, local or in an object store, which may hold sub-folders train and test.

    Images in sub-folders get the first sub-folder's number among all in alphabetical order, others the label -1.
    """

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        place = Location(path)
        sizes, others = _images_in(place)
        if not sizes:
            raise DataError(
                f"data.name: no images in {place.path}, got no file that ends in .png, .jpg or another suffix "
                f"that Pillow decodes{f', only {others}' if others else ''}; give the folder that holds the images"
            )
        if others:
            tell_once(f"{name}: files that are not read as images were left out: {others}")
        chosen = files_of_split(list(sizes), split, name, folder_word)
        if list(chosen.values()) == list(sizes):  # there are no splits
            _require_no_parts_below(list(chosen), name)
            if doubtful := sorted({top for file in chosen if is_split(top := folder_word(file))}):
                tell_once(
                    f"{name}: {' and '.join(doubtful)} are read as classes, since the other folders are not splits"
                )
        labels = of_words(path.partition("/")[0] if "/" in path else "" for path in chosen.values())
        listing = Listing({file: sizes[file] for file in chosen}, [*chosen.values()], labels.numbers, labels.names)
        super().__init__(name, place, split, reading, listing)
        self.files_digest = digest_of_files({path: str(sizes[file]) for file, path in chosen.items()})


def folder_splits(path: str) -> tuple[Split, ...]:
    """Return which splits the images in a folder have."""
    return splits_among(list(_images_in(Location(path))[0]), folder_word)


def _images_in(place: Location) -> tuple[dict[str, int], str]:
    """Return the sizes in bytes of the images in a folder by path, and in words how many other files there are."""
    images, others, suffixes = dict[str, int](), Counter[str](), image_suffixes()
    for file, size in place.sizes(("",)).items():
        path = file or place.path
        if is_by_product(file):
            others["in folders of thumbnails or deleted files"] += 1
        elif path.lower().endswith(suffixes):
            images[file] = size
        else:
            others[splitext(path)[1].lower()[:_SHOWN] or "without a suffix"] += 1
    shown = [f"{times:,} {suffix}" for suffix, times in others.most_common(_SHOWN)]
    more = len(others) - len(shown)
    return images, ", ".join([*shown, *([f"and {more:,} other suffixes"] if more else [])])


def _require_no_parts_below(files: list[str], name: str) -> None:
    """Refuse classes that hold a part for training and one for tests, all of which would be training images."""
    words: dict[str, set[str]] = {}
    for folder in dict.fromkeys(file.rpartition("/")[0] for file in files):  # far fewer than files
        top, _, rest = folder.partition("/")
        words.setdefault(top, set()).add(folder_word(f"{rest}/"))
    both = [top for top, below in words.items() if top and word_for("train", below) and word_for("test", below)]
    if both:
        hint = (
            f"give {name.rstrip('/')}/{both[0]}" if len(words) == 1 else "put the classes into PATH/train and PATH/test"
        )
        raise DataError(
            f"data.name: {name} has test images in its class {both[0]}, got folders train and test in it; {hint}"
        )
