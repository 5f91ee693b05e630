"""Datasets named by their location, such as ``folder:`` and a path, and the splits of their files."""

from __future__ import annotations

import hashlib
import logging
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from ebclab.config.addresses import LOCATIONS, absolute, is_address
from ebclab.data.sources.catalogue import Split
from ebclab.errors import DataError, NoTestPartError
from ebclab.formatting import first_few
from ebclab.storage.filesystem import Location
from ebclab.storage.reading import LARGEST, foreign_json_value, typed

if TYPE_CHECKING:
    from torch import Tensor

_WORDS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "test": ("test", "testing", "val", "valid", "validation", "eval", "evaluation", "dev"),
}
_KNOWN = {word: split for split, words in _WORDS.items() for word in words}
_PART = re.compile("|".join(["trainval", *sorted(_KNOWN, key=len, reverse=True)]))  # the longest first
_NO_LETTERS = re.compile(r"[\W\d_]+")
_BY_PRODUCTS = {"@eadir", "__macosx", ".thumbnails", "#recycle", "$recycle.bin", "lost+found"}
_SHOWN = 5  # files in a message
_SUFFIX_SHOWN, _SUFFIXES_SHOWN = 10, 10  # characters, and suffixes, in a message
_REMEDIES = {
    **dict.fromkeys((".zip", ".gz", ".tgz", ".xz", ".zst", ".bz2", ".7z", ".rar"), "unpack it"),
    ".jxl": "convert it to PNG, since JPEG XL is not read",
    ".tar": "read tars by webdataset:PATH",
    ".parquet": "read Parquet by parquet:PATH",
    ".arrow": "read Arrow by arrow:PATH",
    ".tfrecord": "write it as Parquet with encoded images, and read that by parquet:PATH",
    **dict.fromkeys((".h5", ".hdf5", ".mat", ".npz", ".npy"), "give arrays to ebclab.pretrain(images=...) in Python"),
    **dict.fromkeys((".jpg", ".jpeg", ".png"), "read images by folder:PATH"),
}

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
    place = location[1] if is_address(location[1]) else str(absolute(location[1]))
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
        if word_of is not folder_word:
            _require_no_parts_in(files, name)
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


def _require_no_parts_in(files: Iterable[str], name: str) -> None:
    """Refuse files whose paths, or names alone, differ in the word for a part."""
    parts = [(file, _without_columns(file)) for file in files]
    meant = {each: file for file, part in parts for each in ("/".join(part), *part[-1:])}
    if both := parts_by_name(meant):
        raise DataError(
            f"data.name: {name} has test images among those for training, got files "
            f"{' and '.join(meant[each] for each in both)}; call the parts train and test"
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


def parts_within(folders: Iterable[str]) -> tuple[str, list[str]] | None:
    """Return the first folder in these paths that holds one for training and one for tests, and the names of both."""
    within: dict[str, dict[str, None]] = {}
    for folder in folders:
        names = folder.split("/")
        for depth, name in enumerate(names):
            within.setdefault("/".join(names[:depth]), {})[name] = None
    return next(((folder, both) for folder, names in within.items() if (both := parts_by_name(names))), None)


def parts_by_name(names: Iterable[str]) -> list[str]:
    """Return two names whose letters differ in the word for a part alone, as trainSet_1 and testSet; empty if none.

    What is called trainval is trained on.
    """
    alike: dict[str, dict[Split, str]] = {}
    for name in names:
        small = name.lower()
        for word in _PART.finditer(small):
            rest = _NO_LETTERS.sub("", small[: word.start()] + small[word.end() :])
            alike.setdefault(rest, {})[_KNOWN.get(word[0], "train")] = name
    return next((sorted(parts.values()) for parts in alike.values() if len(parts) > 1), [])


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
    parts = _without_columns(file)
    if folder := next((word for word in map(_word, parts[:-1]) if word in _KNOWN), ""):
        return folder
    words = [word for word in map(_word, re.split(r"[-_./ ]+", "/".join(parts))) if word in _KNOWN]
    if len({_KNOWN[word] for word in words}) > 1:
        raise DataError(
            f"data.name: the name of a file must be that of one part, got {' and '.join(words)} in {file:.80}; rename "
            "it, or move it into a folder train or test"
        )
    return words[0] if words else ""


def _without_columns(file: str) -> list[str]:
    parts = [part.removeprefix("split=") for part in file.split("/")]
    return [part for part in parts if "=" not in part]


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


def by_suffix(files: Iterable[str], others: Counter[str] | None = None) -> str:
    """Return in words how many files have each suffix, most first, beside those that ``others`` counts."""
    suffixes = Counter(posixpath.splitext(file)[1].lower()[:_SUFFIX_SHOWN] or "without a suffix" for file in files)
    suffixes += others or Counter()
    shown = [f"{times:,} {suffix}" for suffix, times in suffixes.most_common(_SUFFIXES_SHOWN)]
    more = len(suffixes) - len(shown)
    return ", ".join([*shown, *([f"and {more:,} other suffixes"] if more else [])])


def files_ending(place: Location, suffix: str, name: str, beside: Collection[str] = ()) -> dict[str, int]:
    """Return the sizes in bytes of a set's files by path; those of other suffixes, not ``beside``, are told once."""
    every = place.sizes(("",))
    files = {file: size for file, size in every.items() if (file or place.path).lower().endswith(suffix)}
    others = by_suffix(file or place.path for file in every if file not in files and file not in beside)
    if files and others:
        tell_once(f"{name}: files that do not end in {suffix} were left out: {others}")
    if not files:
        only = f", only {others}" if others else ""
        raise DataError(
            f"data.name: files that end in {suffix} are needed in {place.path}, got none{only}; {remedy(others)}"
        )
    return files


def remedy(others: str) -> str:
    """Return what to do about a folder that holds no files of the kind that is read, only ``others``."""
    return next((way for suffix, way in _REMEDIES.items() if f" {suffix}" in others), "give the folder that holds them")


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
