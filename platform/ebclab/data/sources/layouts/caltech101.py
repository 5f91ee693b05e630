"""Caltech-101 (Fei-Fei, Fergus and Perona, 2004): a folder of photographs for each of 101 classes and the background.

No split was published. Thirty images of each class train and all others test, as in Kornblith et al. (2019), table 1,
who count the background as a class. Which thirty: those whose keys have the smallest hash, the same for everybody.
"""

from __future__ import annotations

from functools import partial

import torch

from ebclab.data.hashing import hash_words
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.layouts.layout import Layout, ListedImages, Listing
from ebclab.data.sources.location import hash_of_path
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

TRAINING_IMAGES = 30
"""Images of each class that are trained on."""

_FOLDER = "101_ObjectCategories"
_CLASSES = 102
_SPLIT_SALT = 0x63616C74656368  # names this use of the keys


def _list_caltech(place: Location, split: Split) -> Listing:
    class_names = tuple(place.folders(_FOLDER))
    if len(class_names) != _CLASSES:
        raise DataError(
            f"{place.path}/{_FOLDER}: needs {_CLASSES} folders, 101 classes and BACKGROUND_Google, got "
            f"{len(class_names)}; unpack 101_ObjectCategories.tar.gz again"
        )
    everything = place.sizes((".jpg",), _FOLDER)
    names = {file: file.removeprefix(f"{_FOLDER}/") for file in everything}
    if stray := [file for file, name in names.items() if "/" not in name]:
        raise DataError(f"{place.path}: an image must lie in the folder of its class, got {stray[0]}; move it away")
    of_class: dict[str, list[str]] = {name: [] for name in class_names}
    for file, name in names.items():
        of_class[name.partition("/")[0]].append(file)
    chosen, labels = [], []
    for label, files in enumerate(of_class.values()):
        training = _training_part([names[file] for file in files])
        part = [file for file in files if (names[file] in training) == (split == "train")]
        chosen += part
        labels += [label] * len(part)
    return Listing({file: everything[file] for file in chosen}, [names[file] for file in chosen], labels, class_names)


def _training_part(names: list[str]) -> set[str]:
    """Return those images of a class that are trained on."""
    if not names:
        return set()
    order = torch.argsort(hash_words(_SPLIT_SALT, torch.tensor([hash_of_path(name) for name in names])), stable=True)
    return {names[row] for row in order[:TRAINING_IMAGES].tolist()}


CALTECH101 = Layout(
    name="caltech101",
    image="photographs",
    num_images={"train": 3_060, "test": 6_084},
    needs=(_FOLDER,),
    test_needs=(_FOLDER,),
    instructions="""\
Unpack caltech-101.zip of https://data.caltech.edu/records/mzrjq-6wc02, and 101_ObjectCategories.tar.gz in it; PATH
holds
  101_ObjectCategories/accordion/image_0001.jpg ...""",
    open=partial(ListedImages, listed=_list_caltech),
)
