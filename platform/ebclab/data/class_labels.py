"""Labels with the names of their classes: of a file, of the files of a part, and of a test part as in training."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ebclab.errors import DataError
from ebclab.formatting import first_few

_MOST_CLASSES = 1 << 20  # more words than these are names of images
LONGEST_WORD = 1000
"""Most characters of the name of a class."""

_SHOWN = 10  # names in a message
_LARGEST_INTEGER = 1 << 63
_WHOLE = re.compile(r"(-?[0-9]{1,19})(\.0*)?")


class Labels(NamedTuple):
    """Labels of n images."""

    numbers: Tensor  # (n,) int64; -1 where unknown
    names: tuple[str, ...] = ()  # names of the classes, by number; empty where the classes have numbers alone


def num_unlabelled(labels: Tensor) -> int:
    """Return how many images have no label that tells some from others: an unknown one, or the only one there is."""
    missing = labels < 0
    return int(missing.sum()) if len(torch.unique(labels[~missing])) > 1 else len(labels)


def one_class_problem(name: str) -> str:
    """Return the sentence about a dataset called ``name`` whose images all have one label."""
    return f"{name}: two classes are needed, got 1, about which any probe is right; choose another dataset"


def label_of(value: object, what: str) -> int | str:
    """Return a value of JSON or the text of a file as a label, a number or a word; -1 where it is empty.

    Raises:
        ValueError: It is neither; ``what`` names its image.
    """
    match value:
        case None:
            return -1
        case float() | str() if str(value).lower() == "nan":  # as in a column of numbers; NA is also a country
            return -1
        case str() if whole := _WHOLE.fullmatch(value):
            return label_of(int(whole[1]), what)
        case str() if len(value) <= LONGEST_WORD:
            return sys.intern(value)  # the same for many images
        case bool():
            return str(value).lower()
        case int() | float() if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER and value == int(value):
            return int(value)
    raise ValueError(f"{what} needs a whole number or a word for a label, not {value!r:.80}")


def of_words(words: Iterable[str]) -> Labels:
    """Return the labels of images whose classes are words: their numbers in sorted order; an empty word is unknown.

    Words that differ in their Unicode form alone are one class, with the name that is sorted first.
    """
    every = list(words)
    names: dict[str, str] = {}
    for word in sorted(set(every) - {""}):
        names.setdefault(comparable(word), word)
    if len(names) > _MOST_CLASSES or any(len(name) > LONGEST_WORD for name in names):
        raise DataError(
            f"data.label_column: at most {_MOST_CLASSES:,} words of {LONGEST_WORD:,} characters are names of classes, "
            f"got {len(names):,}, the longest of {max(map(len, names)):,}; name another column, or none"
        )
    numbers = {form: number for number, form in enumerate(names)}
    of_word = {word: numbers.get(comparable(word), -1) for word in set(every)}
    return Labels(torch.tensor([of_word[word] for word in every], dtype=torch.int64), tuple(names.values()))


def of_values(values: Sequence[int | str], where: str) -> Labels:
    """Return labels that are all numbers or all words; -1 and the empty word are unknown."""
    numbers = Labels(torch.tensor([-1 if isinstance(each, str) else each for each in values]))
    words = of_words(each if isinstance(each, str) else "" for each in values)
    if not words.names:
        return numbers
    joined([numbers, words], where)  # refuses a mixture
    return words


def joined(parts: Sequence[Labels], where: str) -> Labels:
    """Return the labels of several files of one part in their order, each matched by the names of its classes.

    Files with the same names keep their numbers; otherwise the classes of all are numbered in sorted order.
    """
    labelled = [part for part in parts if bool((part.numbers >= 0).any())]
    lists = list(dict.fromkeys(part.names for part in labelled))
    if len(lists) > 1 and () in lists:
        shown = next(names for names in lists if names)
        raise DataError(
            f"data.label_column: labels must be all numbers or all names of classes, got both numbers and "
            f"{first_few(shown, _SHOWN)} in {where}; write them alike"
        )
    for part in labelled:
        if part.names and int(part.numbers.max()) >= len(part.names):
            raise DataError(
                f"data.label_column: every label must have a name, got {int(part.numbers.max())} in {where}, which "
                f"names {len(part.names):,} classes; correct the names"
            )
    if len(lists) > 1:
        names = of_words(name for each in lists for name in each).names
        parts = [
            part._replace(numbers=_replaced(part.numbers, dict(enumerate(_places(part.names, names, where)))))
            for part in parts
        ]
        lists = [names]
    names = lists[0] if lists else next((part.names for part in parts if part.names), ())
    return Labels(torch.cat([part.numbers for part in parts]), names)


def as_in_training(test: Labels, train: Labels, name: str) -> Labels:
    """Return the labels of the test part of dataset ``name`` with the numbers of the same classes in its training part.

    Without labels in one of the two, there is nothing to match.
    """
    known, used = (torch.unique(part.numbers[part.numbers >= 0]).tolist() for part in (train, test))
    if not known or not used:
        return test if used else Labels(test.numbers, train.names)
    if bool(train.names) != bool(test.names):
        parts = ("training", "test") if train.names else ("test", "training")
        names = first_few(train.names or test.names, _SHOWN)
        raise DataError(
            f"data.name: both parts of {name} must name their classes, or neither, got {names} in the {parts[0]} part "
            f"and numbers in the {parts[1]} part, which may have another order; write them alike"
        )
    numbers = dict(zip(used, used, strict=True))
    if test.names != train.names:
        places = _places(test.names, train.names, name)
        numbers = {number: places[number] for number in used}
    of_train = set(known)
    if strange := [number for number in used if numbers[number] not in of_train]:
        got, there = (
            first_few([names[each] if names else str(each) for each in numbers_], _SHOWN)
            for names, numbers_ in ((test.names, strange), (train.names, known))
        )
        raise DataError(
            f"data.name: {name} has test classes without training images, got {got}; known are {there}; leave these "
            "images out, or add some to the training part"
        )
    return Labels(_replaced(test.numbers, numbers), train.names)


def _replaced(numbers: Tensor, by: dict[int, int]) -> Tensor:
    """Return numbers (n,) with those that ``by`` has replaced by their values."""
    used, places = torch.unique(numbers, return_inverse=True)
    return torch.tensor([by.get(number, number) for number in used.tolist()], dtype=torch.int64)[places]


def _places(names: tuple[str, ...], among: tuple[str, ...], where: str) -> list[int]:
    """Return the place of each name in another list; -1 where that has none."""
    for each in (names, among):
        if shared := shared_names(each):
            raise DataError(f"data.name: names of classes must differ, got {shared[0]} twice in {where}; correct them")
    at = {comparable(name): place for place, name in enumerate(among)}
    return [at.get(comparable(name), -1) for name in names]


def shared_names(names: Iterable[str]) -> list[str]:
    """Return the names that several classes have."""
    return [name for name, times in Counter(map(comparable, names)).items() if times > 1]


def comparable(name: str) -> str:
    """Return a name in the form by which names are compared: composed, without what cannot be seen."""
    if name.isascii():
        return name.strip()
    composed = unicodedata.normalize("NFC", name)
    return "".join(each for each in composed if unicodedata.category(each) != "Cf").strip()
