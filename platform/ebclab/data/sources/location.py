"""Datasets named by their location, such as ``folder:`` and a path, and the splits of their files."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import TypeVar

from torch import Tensor

from ebclab.config.addresses import LOCATIONS, expanded, is_address
from ebclab.data.sources.catalogue import Split
from ebclab.errors import DataError, NoTestPartError
from ebclab.formatting import first_few
from ebclab.storage.filesystem import Location
from ebclab.storage.reading import LARGEST, foreign_json_value, typed

_WORDS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "test": ("test", "testing", "val", "valid", "validation"),
}
_KNOWN = {word: split for split, words in _WORDS.items() for word in words}
_BY_PRODUCTS = {"@eadir", "__macosx", ".thumbnails", "#recycle", "$recycle.bin", "lost+found"}
_SHOWN = 5  # files in a message

_log = logging.getLogger("ebclab.data")

T = TypeVar("T")

Place = tuple[str, str]
"""Kind of a location, one of ``LOCATIONS`` without its colon, and path or address."""


def location_of(name: str) -> Place | None:
    """Return the location in ``data.name``; None for a name of the catalogue."""
    kind, colon, path = name.partition(":")
    if f"{kind}:" not in LOCATIONS:
        return None
    if not colon or not path.strip():
        raise DataError(f"data.name: {kind} needs a path, got {name!r}; write {kind}:PATH")
    return kind, path


def last_part(name: str) -> str:
    """Return the last part of the location that a dataset is named by, or its name."""
    if (location := location_of(name)) is None:
        return name
    path = location[1].partition("?")[0] if is_address(location[1]) else location[1]
    return re.split("[/:]+", path.rstrip("/"))[-1]


def short_name(name: str) -> str:
    """Return a dataset's name in a form for file names: ``folder:/data/birds`` becomes folder-birds."""
    location = location_of(name)
    return f"{location[0]}-{last_part(name)}" if location else name.replace(":", "-")  # own:NAME


def distinct_name(name: str) -> str:
    """Return ``short_name`` and, for a location, a hash of it: folders with one last part have different results."""
    if (location := location_of(name)) is None:
        return short_name(name)
    place = location[1] if is_address(location[1]) else str(expanded(location[1]).absolute())
    return f"{short_name(name)}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def files_of_split(files: list[str], split: Split, name: str, word_of: Callable[[str], str]) -> dict[str, str]:
    """Return those of ``files`` that belong to a split, each with its path within the split.

    ``_WORDS`` name splits. If nothing is called train, all files are the training split and there is no test split. Of
    several words for a split, the first is used; files of neither split are left out, which is logged once.

    Args:
        word_of: Returns the word of a file that may name its split, such as ``folder_word``.
    """
    words = list(map(word_of, files))
    called = _splits_called(files, words, is_tree=word_of is folder_word)
    if split == "train" and not called:
        return {file: file for file in files}
    if split in called:
        part = [file for file, word in zip(files, words, strict=True) if word == called[split]]
        inside = {file: file.partition("/")[2] if folder_word(file) in _KNOWN else file for file in part}
        if word_of is folder_word and {*map(folder_word, inside.values())} == {called[split]}:  # Kaggle's train/train
            inside = {file: path.partition("/")[2] for file, path in inside.items()}
        by_path = {path: file for file, path in inside.items()}
        if twice := [file for file in part if by_path[inside[file]] != file]:
            raise DataError(
                f"data.name: {name} has two {split} parts with a file {inside[twice[0]]}, got {twice[0]} and "
                f"{by_path[inside[twice[0]]]}; move one of them away"
            )
        if rest := [file for file, word in zip(files, words, strict=True) if word not in called.values()]:
            parts = " and ".join(called.values())
            counts = f"{len(rest):,} of {len(files):,}"
            tell_once(f"{name}: files outside of {parts} were left out, {counts}: {first_few(rest, _SHOWN)}")
        return inside
    raise NoTestPartError(
        f"data.name: {name} has no test images, got nothing called {', '.join(_WORDS['test'])} beside train; "
        "put the images into PATH/train and PATH/test"
    )


def splits_among(files: list[str], word_of: Callable[[str], str]) -> tuple[Split, ...]:
    """Return which splits ``files`` hold, by the rule of ``files_of_split``."""
    called = _splits_called(files, list(map(word_of, files)), is_tree=word_of is folder_word)
    return ("train", "test") if "test" in called else ("train",)


def _splits_called(files: list[str], words: list[str], *, is_tree: bool) -> dict[Split, str]:
    """Return the word for each split that there is; empty if all files are the training split.

    In a tree, folders that name no split may be classes.
    """
    present = set(words)
    called = {split: word for split in _WORDS if (word := word_for(split, present))}
    tests = [word for word in _WORDS["test"] if word in present]
    if "train" not in called:
        if tests and present != set(tests[:1]) and (not is_tree or present <= set(tests)):
            beside = f"{len(files) - sum(map(words.count, tests)):,} without such a name"
            raise DataError(
                f"data.name: test images are not training images, got files called {' and '.join(tests)}, {beside} and "
                "none called train; call the training part train, or give the path of one part"
            )
        return {}
    if "test" not in called and is_tree and (others := present - {"", called["train"]}):
        deep = {word for file, word in zip(files, words, strict=True) if file.count("/") > 1}
        if called["train"] not in deep:
            return {}  # a class of this name
        if deep & others:
            beside = first_few(sorted(others), _SHOWN)
            raise DataError(
                f"data.name: {called['train']} may be the training part or a class, got it beside {beside} with "
                f"folders in them; give PATH/{called['train']}, or rename the class"
            )
    return called


def word_for(split: Split, words: Collection[str]) -> str:
    """Return the first of ``words`` that names a split; empty if none does."""
    return next((word for word in _WORDS[split] if word in words), "")


def folders_with_parts(folders: Iterable[str]) -> list[str]:
    """Return the first of each of these paths that has one folder for training and one for tests in it."""
    words: dict[str, set[str]] = {}
    for folder in folders:
        top, _, rest = folder.partition("/")
        words.setdefault(top, set()).add(folder_word(f"{rest}/"))
    return [top for top, below in words.items() if top and word_for("train", below) and word_for("test", below)]


def parts_by_name(folders: Iterable[str]) -> list[str]:
    """Return two folders whose names differ in the names of parts alone, as seg_train and seg_test; empty if none."""
    alike: dict[str, dict[Split, str]] = {}
    for folder in folders:
        for word in _KNOWN.keys() & set(re.split(r"[-_. ]+", folder.lower())):
            alike.setdefault(folder.lower().replace(word, ""), {})[_KNOWN[word]] = folder
    return next((list(parts.values()) for parts in alike.values() if len(parts) > 1), [])


def hash_of_path(path: str) -> int:
    """Return a 64-bit signed hash of a relative path, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little", signed=True)


def folder_word(file: str) -> str:
    """Return the first folder of a path, without the number after the name of a split; empty if it has none."""
    folder, slash, _ = file.partition("/")
    return _word(folder) if slash else ""


def any_word(file: str) -> str:
    """Return the first folder of a path that names a split, or else the word of its names that does.

    Of folders that are values of columns, as in ``label=ant``, those of a column ``split`` may.
    """
    parts = [part.removeprefix("split=") for part in file.split("/")]
    parts = [part for part in parts if "=" not in part]
    if folder := next((word for word in map(_word, parts[:-1]) if word in _KNOWN), ""):
        return folder
    words = [word for word in map(_word, re.split(r"[-_./ ]+", "/".join(parts))) if word in _KNOWN]
    if len({_KNOWN[word] for word in words}) > 1:
        raise DataError(
            f"data.name: the name of a file must be that of one part, got {' and '.join(words)} in {file:.80}; rename "
            "it, or move it into a folder train or test"
        )
    return words[0] if words else ""


def _word(text: str) -> str:
    word = text.lower()
    bare = word.rstrip("0123456789")  # as of train2017 and Kaggle's test1
    return bare if bare in _KNOWN else word


def is_split(word: str) -> bool:
    """Return whether a word names a split."""
    return word in _KNOWN


def is_by_product(file: str) -> bool:
    """Return whether a file lies in a folder that file managers and archivers make, of thumbnails or deleted files."""
    return not _BY_PRODUCTS.isdisjoint(file.lower().split("/"))


def tell_unlabelled(name: str, split: Split, labels: Tensor) -> None:
    """Log how many images of a part have no label, where others have one."""
    if 0 < (missing := int((labels < 0).sum())) < len(labels):
        tell_once(f"{name}: {missing:,} of {len(labels):,} {split} images have no label")


@cache
def tell_once(message: str) -> None:
    """Log a warning, once a process."""
    _log.warning("%s", message)


def typed_file(place: Location, file: str, kind: type[T], without: str = "") -> T:
    """Return the content of a JSON file of a dataset as ``kind``.

    Args:
        without: Characters with which the file's keys may begin, and the fields of ``kind`` do not.
    """
    try:
        if (place.size(file) or 0) > LARGEST:
            raise ValueError(f"more than {LARGEST:,} bytes")
        value = foreign_json_value(place.read(file))
        return typed(
            {key.lstrip(without): each for key, each in value.items()} if isinstance(value, dict) else value, kind
        )
    except ValueError as error:
        raise DataError(f"{place.path}/{file}: damaged, {error}; copy the set again") from error
