"""Datasets named by their location, such as ``folder:`` and a path, and the splits of their files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import NamedTuple

from ebclab.config.addresses import LOCATIONS, is_address
from ebclab.data.sources.catalogue import Split
from ebclab.errors import DataError

_WORDS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "val", "valid", "validation")}


class DatasetLocation(NamedTuple):
    """The location by which a dataset is named.

    Attributes:
        kind: One of ``LOCATIONS``, without the colon.
        path: Path or address.
    """

    kind: str
    path: str


def location_of(name: str) -> DatasetLocation | None:
    """Return the location in a dataset's name, or None when the name is one of the catalogue.

    Args:
        name: What the setting ``data.name`` says.

    Raises:
        DataError: A kind without a path.
    """
    kind, colon, path = name.partition(":")
    if f"{kind}:" not in LOCATIONS:
        return None
    if not colon or not path.strip():
        raise DataError(f"data.name: {kind} needs a path, got {name!r}; write {kind}:PATH")
    return DatasetLocation(kind, path)


def last_part(name: str) -> str:
    """Return the last part of the location that a dataset is named by, or its name."""
    location = location_of(name)
    if location is None:
        return name
    path = location.path.partition("?")[0] if is_address(location.path) else location.path
    return re.split("[/:]+", path.rstrip("/"))[-1]


def short_name(name: str) -> str:
    """Return a dataset's name in a form for file names: ``folder:/data/birds`` becomes folder-birds."""
    location = location_of(name)
    return f"{location.kind}-{last_part(name)}" if location else name.replace(":", "-")  # own:NAME


def files_of_split(files: list[str], split: Split, name: str, word_of: Callable[[str], str]) -> dict[str, str]:
    """Return those of ``files`` that belong to a split, each with its path within the split.

    A split is called train, test, val, valid or validation. If nothing is called train, all files are the training
    split and there is no test split. Of several test splits, the first in this order is used.

    Args:
        files: Paths relative to the dataset's location.
        split: Which part.
        name: Dataset name, for the message.
        word_of: Returns the word of a file that may name its split, such as ``folder_word``.

    Raises:
        DataError: There is no test split, or two files have the same path within the split.
    """
    words = [word_of(file) for file in files]
    present = set(words)
    if split == "train" and "train" not in present:
        return {file: file for file in files}
    if split in _splits_called(present):
        chosen = next(word for word in _WORDS[split] if word in present)
        part = [file for file, word in zip(files, words, strict=True) if word == chosen]
        inside = {file: file.partition("/")[2] or file for file in part}
        by_path = {path: file for file, path in inside.items()}
        if twice := [file for file in part if by_path[inside[file]] != file]:
            raise DataError(
                f"data.name: {name} has two {split} parts with a file {inside[twice[0]]}, got {twice[0]} and "
                f"{by_path[inside[twice[0]]]}; move one of them away"
            )
        return inside
    raise DataError(
        f"data.name: {name} has no test images, got nothing called {', '.join(_WORDS['test'])} beside train; "
        "put the images into PATH/train and PATH/test"
    )


def splits_among(files: list[str], word_of: Callable[[str], str]) -> tuple[Split, ...]:
    """Return which splits ``files`` hold, by the rule of ``files_of_split``."""
    return _splits_called(set(map(word_of, files)))


def _splits_called(words: set[str]) -> tuple[Split, ...]:
    return ("train", "test") if "train" in words and words & set(_WORDS["test"]) else ("train",)


def hash_of_path(path: str) -> int:
    """Return a 64-bit signed hash of a relative path, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little", signed=True)


def folder_word(file: str) -> str:
    """Return the first folder of a path; empty if it has none."""
    folder, slash, _ = file.partition("/")
    return folder.lower() if slash else ""


def first_word(file: str) -> str:
    """Return the first folder of a path or, if it has none, the first word of the file's name."""
    return folder_word(file) or re.split(r"[-_.]", file, maxsplit=1)[0].lower()


def any_word(file: str) -> str:
    """Return the first folder of a path or, if it has none, the word of the file's name that names a split."""
    known = {word for words in _WORDS.values() for word in words}
    return folder_word(file) or next((word for word in re.split(r"[-_.]", file.lower()) if word in known), "")
