"""The images of a card: its own dataset, transfer datasets, and out-of-distribution images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from ebclab.card.subject import Subject
from ebclab.config.names import nearest
from ebclab.data.class_labels import one_class_problem
from ebclab.data.holdout import held_out, kept_to_confirm, limit
from ebclab.data.image_set import ImageSet, content_digest, repeats
from ebclab.data.photograph import Reading
from ebclab.data.sources.catalogue import DATASETS, Split, are_photographs
from ebclab.data.sources.folder import files_by_key
from ebclab.data.sources.load import load_both
from ebclab.data.sources.location import short_name
from ebclab.errors import DataError, NoTestPartError, UserError
from ebclab.evaluation.features import num_classes, several_labels
from ebclab.evaluation.measures.out_of_distribution import Alteration, altered_half
from ebclab.runs.evaluate import HOLDOUT_RATE, MeasuredImages, held_out_images, images_of_run, with_channels

Kind = Literal["near", "far"]


@dataclass(frozen=True)
class MeasuredSet:
    """Training and test images of one dataset, with as many channels as the encoder takes."""

    name: str  # of the dataset
    train: ImageSet  # with the images held out to choose by
    test: ImageSet
    tests_held_out: bool = False  # the dataset has no test part: the test images are held out by hash

    @property
    def may_have_several_labels(self) -> bool:
        return self.train.marks is not None

    @property
    def unlabelled(self) -> int:
        return sum(int((part.labels < 0).sum()) for part in (self.train, self.test))

    @property
    def num_classes(self) -> int:
        marks = self.train.marks
        return num_classes(self.train, self.test) if marks is None else marks.shape[1]

    @cached_property
    def label_problem(self) -> str:
        """Why metrics that need labels cannot be computed on this dataset; empty if they can."""
        if self.may_have_several_labels:
            return several_labels(self.train)
        if self.unlabelled:
            return f"{self.name}: {self.unlabelled:,} images have no label; choose a labelled dataset"
        if self.num_classes < 2:
            return one_class_problem(self.name)
        counts = torch.bincount(self.train.labels, minlength=self.num_classes)
        untrained: list[int] = (counts == 0).nonzero().flatten().tolist()
        if not untrained:
            return ""
        return (
            f"{self.name}: every class needs a training image, got none of {len(untrained):,} of {self.num_classes:,} "
            f"classes, {self._class_name(untrained[0])} for one; add some, or choose another dataset"
        )

    def _class_name(self, label: int) -> str:
        for names in (self.train.class_names, self.test.class_names):
            if label < len(names):
                return names[label]
        return str(label)

    @cached_property
    def is_held_out(self) -> Tensor:
        """(n,) bool: which training images are held out for model selection."""
        choose = kept_to_confirm if self.tests_held_out else held_out
        return choose(self.train.keys, HOLDOUT_RATE)

    @cached_property
    def parts(self) -> tuple[ImageSet, ImageSet]:
        """The training images that a classifier is fitted on, and those held out for model selection."""
        return self.train.rows(~self.is_held_out), self.train.rows(self.is_held_out)

    @cached_property
    def num_repeated(self) -> int:
        """How many test images are also training images, pixel for pixel."""
        return repeats(self.train, self.test).images

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the images, keys, labels, marks, class names and channel statistics of both sets."""
        return content_digest(self.train, self.test)


@dataclass(frozen=True)
class OutsideSet:
    """Out-of-distribution images, which an encoder should tell from test images of its own dataset."""

    name: str  # the dataset, or the alteration of the test images
    kind: Kind  # "near": like the training images, but of other classes or altered; "far": of another kind
    outside: ImageSet
    inside: ImageSet  # test images; none of them is also in ``outside``, altered or not

    def __post_init__(self) -> None:
        if min(len(self.inside), len(self.outside)) < 2:
            raise DataError(
                f"--ood: {self.name} needs two images and two test images to separate them from, got "
                f"{len(self.outside)} and {len(self.inside)}; use larger sets"
            )

    @cached_property
    def digest(self) -> str:
        return content_digest(self.inside, self.outside)


def slug(text: str) -> str:
    """Return text as lowercase letters, digits and hyphens."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def unique_names(names: Iterable[str], separator: str = "-") -> list[str]:
    """Return names with a number behind each that was there before."""
    unique: list[str] = []
    for plain in names:
        name, number = plain, 1
        while name in unique:
            number += 1
            name = f"{plain}{separator}{number}"
        unique.append(name)
    return unique


def short_names(sets: Sequence[MeasuredSet]) -> list[str]:
    """Return a unique name of lowercase letters, digits and hyphens for each set."""
    return unique_names(slug(short_name(measured.name)) or "images" for measured in sets)


def named_set(name: str | None, subject: Subject, data_root: str | None, *, needs_test: bool = True) -> MeasuredSet:
    """Return a dataset by its name, read with the same settings as the run's own images; None: these themselves.

    Of a dataset without a test part, images held out by hash are the test images; unless ``needs_test``, its one
    part is both.
    """
    try:
        seen = _images(name, subject, data_root, needs_test=needs_test)
    except NoTestPartError:
        seen = held_out_images(_images(name, subject, data_root, needs_test=False), subject.trained)
    train, test = (with_channels(part, subject.in_channels, subject.label) for part in (seen.train, seen.test))
    return MeasuredSet(seen.name, train, test, seen.held_out)


def no_images_of(subject: Subject) -> str:
    """Return what to say of an encoder that has no images of its own, if none are named."""
    return f"--dataset: must be given for {subject.address}, which is not an ebclab run; name a dataset"


def _images(name: str | None, subject: Subject, data_root: str | None, *, needs_test: bool) -> MeasuredImages:
    if subject.trained is not None:
        return images_of_run(subject.trained, name, data_root, subject.preprocessing, needs_test=needs_test)
    if name is None:
        raise UserError(no_images_of(subject))
    preprocessing = subject.preprocessing
    side = preprocessing.read_size or (preprocessing.image_size if are_photographs(name) else 0)
    colour: Literal["rgb", "grey"] = "rgb" if subject.in_channels == 3 else "grey"
    reading = Reading(side, colour, decoding=preprocessing.decoding, resampling=preprocessing.resampling)
    both = load_both(name, data_root, reading, needs_test=needs_test, side=preprocessing.image_size)
    return MeasuredImages(name, *both)


def parts_of(measured: MeasuredSet) -> dict[Split, ImageSet]:
    """Return both parts by name; only the first if the dataset has one part, which is both."""
    if torch.equal(measured.train.images, measured.test.images):
        return {"train": measured.train}
    return {"train": measured.train, "test": measured.test}


def class_and_file(part: Split, images: ImageSet, dataset: str) -> list[tuple[str, str]]:
    """Return class and file of each image, or its place in its part where images are no files."""
    files, names = files_by_key(dataset, part), images.class_names
    return [
        (names[label] if 0 <= label < len(names) else "" if label < 0 else str(label), files.get(key, f"{part} {row}"))
        for row, (key, label) in enumerate(zip(images.keys.tolist(), images.labels.tolist(), strict=True))
    ]


def outside_set(text: str, subject: Subject, measured: MeasuredSet, data_root: str | None) -> OutsideSet:
    """Return the out-of-distribution images of ``near=NAME`` or ``far=NAME``: a dataset, ``inverted`` or ``rotated``.

    NAME alone means far, unless it is one of these two. A dataset without a test part gives all of its images.
    """
    if "=" in text.partition(":")[0]:
        kind, _, name = text.partition("=")
    else:
        kind, name = "near" if text in get_args(Alteration) else "far", text
    if kind not in get_args(Kind) or not name:
        raise UserError(f"--ood: must be NAME, near=NAME or far=NAME, got {text}")
    kind = cast(Kind, kind)
    if name in get_args(Alteration):
        inside, half = altered_half(measured.test, cast(Alteration, name), held_out(measured.test.keys, 0.5))
        return OutsideSet(name, kind, half, inside)
    if name not in DATASETS and (meant := nearest(name, get_args(Alteration))):
        raise UserError(f"--ood: no such images, got {name}; did you mean {meant}?")
    other = named_set(name, subject, data_root, needs_test=False)
    known = [measured.train, measured.test]  # with --train-limit and --test-limit, a subset
    parts = (other.train, other.test)
    is_known = any(torch.equal(limit(part, len(each)).images, each.images) for part in parts for each in known)
    if is_known or (measured.tests_held_out and repeats(other.test, measured.test).images == len(measured.test)):
        raise DataError(f"--ood: {text} has the images that the card is measured on; name another dataset")
    return OutsideSet(name, kind, other.test, measured.test)
