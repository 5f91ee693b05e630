"""Input of the groups of a card: the encoder, the images, their features and the cache of these, and a classifier."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from ebclab.card.card import Findings
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.request import GroupOptions
from ebclab.card.subject import Subject
from ebclab.config.experiment import RecordedSettings
from ebclab.config.options import values_of
from ebclab.config.sections import EvaluationConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet, short_digest
from ebclab.data.sources.location import short_name
from ebclab.errors import DataError, EbclabError
from ebclab.evaluation.features import Encoder, compute_features, placed
from ebclab.evaluation.linear import LinearHead, TriedHeads, try_penalties
from ebclab.evaluation.measures.geometry import two_views
from ebclab.evaluation.progress import OnProgress
from ebclab.export.energies import REFERENCES, Energies
from ebclab.regular_file import read_regular
from ebclab.storage import atomic
from ebclab.training.restore import load_trained_method, method_from
from energy_contrast.classifier import Classifier
from energy_contrast.method import Method
from energy_contrast.sampling_method import ImageEnergy

_LARGEST = 16 << 30  # bytes of one file


class FeatureStore:
    """Cache of features by encoder and images.

    A file's name is the hash of the encoder's digest (see ``Subject``) and of the images, so a file is never stale. A
    file that cannot be read is computed again.

    Without a folder, features are kept in memory only.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, Tensor | EbclabError] = {}
        self._digest = cache(lambda images: short_digest(images.images, images.keys))

    def name(self, subject: Subject, images: ImageSet) -> str:
        """Return the name of features: equal names mean the same encoder and the same images."""
        return hashlib.sha256(f"{subject.digest} {self._digest(images)}".encode()).hexdigest()[:24]

    def known(self, name: str, count: int) -> Tensor | None:
        """Return the features (n, D) of ``count`` images from memory or disk; None if there are none."""
        if name not in self._known and (saved := self._read(name, count)) is not None:
            self._known[name] = saved
        known = self._known.get(name)
        if isinstance(known, EbclabError):
            raise known
        return known

    def keep(self, name: str, features: Tensor | EbclabError) -> None:
        """Store features in memory and, if there is a folder, on disk; or, in memory, the error if there are none."""
        self._known[name] = features
        if self._folder is not None and isinstance(features, Tensor):
            atomic.make_folder(self._folder)
            content = to_bytes({"features": features, "sha256": _sum(features)})
            atomic.write_bytes(self._folder / f"{name}.safetensors", content)

    def _read(self, name: str, count: int) -> Tensor | None:
        """Return saved features; None if there are none, or they are damaged."""
        if self._folder is None:
            return None
        path = self._folder / f"{name}.safetensors"
        try:
            saved = from_bytes(read_regular(path, _LARGEST))
            features, checksum = saved["features"], saved["sha256"]
        except (OSError, ValueError, KeyError, SafetensorError):
            return None
        is_whole = features.ndim == 2 and len(features) == count and torch.equal(checksum, _sum(features))
        return features if is_whole else None


def _sum(features: Tensor) -> Tensor:
    """Return the SHA-256 of features as a tensor (32,) uint8."""
    return torch.tensor(list(hashlib.sha256(features.numpy().tobytes()).digest()), dtype=torch.uint8)


Part = Literal["train", "test", "other", "outside"]
"""Images of a card: training and test images, images of further datasets, and out-of-distribution images."""


@dataclass(frozen=True)
class CardOptions(GroupOptions):
    """What the groups of one encoder's card read: options, and neighbours, batch size and so on of its run."""

    settings: EvaluationConfig

    @classmethod
    def of(cls, request: GroupOptions, settings: EvaluationConfig) -> CardOptions:
        """Return the options of a request."""
        return cls(settings, **values_of(GroupOptions, request))


@dataclass(eq=False)
class Measuring:
    """One encoder on one dataset, with everything that groups share; expensive results are computed once."""

    subject: Subject
    measured: MeasuredSet
    options: CardOptions
    store: FeatureStore
    _: KW_ONLY
    device: torch.device
    on_progress: OnProgress
    others: tuple[MeasuredSet, ...] = ()
    outside: tuple[OutsideSet, ...] = ()

    def elsewhere(self, other: MeasuredSet) -> Measuring:
        """Return the same encoder on another dataset only."""
        return replace(self, measured=other, others=(), outside=())

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.options.seeds))

    @property
    def encoder(self) -> nn.Module:
        """The frozen encoder, on the device."""
        return placed(self.subject.encoder, self.device)

    def features(self, images: ImageSet) -> Tensor:
        """Return the frozen encoder's embeddings (n, D) of images, float32 on the CPU."""
        name = self.store.name(self.subject, images)
        if (known := self.store.known(name, len(images))) is None:
            known = self.compute(self.encoder, images, f"features of {len(images):,} images of {images.name}")
            self.store.keep(name, known)
        return known

    def images_of(self, part: Part) -> dict[str, ImageSet]:
        """Return the image sets of a part, keyed by the names of their features in the store."""
        sets = {
            "train": [self.measured.train],
            "test": [self.measured.test],
            "other": [images for other in self.others for images in (other.train, other.test)],
            "outside": [images for each in self.outside for images in (each.outside, each.inside)],
        }[part]
        return {self.store.name(self.subject, images): images for images in sets}

    @cached_property
    def images(self) -> dict[str, ImageSet]:
        return {name: images for part in get_args(Part) for name, images in self.images_of(part).items()}

    @cached_property
    def part_features(self) -> tuple[Tensor, Tensor]:
        """The features of both ``parts`` of the training images, sliced from those of all: none is computed twice."""
        features, held_out = self.features(self.measured.train), self.measured.is_held_out
        return features[~held_out], features[held_out]

    @cached_property
    def tried(self) -> TriedHeads:
        """Linear classifiers that were fitted, and compared, without the test set."""
        fitted, held_out = self.measured.parts
        if len(held_out) == 0:
            raise DataError(
                f"{self.measured.name}: a tenth of the training images is held out to choose a penalty and a "
                f"temperature, which is less than one image of {len(self.measured.train)}; measure on a larger set"
            )
        x, held_x = self.part_features
        y, classes = fitted.labels, self.measured.num_classes
        return try_penalties((x, y), (held_x, held_out.labels), classes, self.on_progress)

    @property
    def classifier(self) -> LinearHead:
        """The classifier whose probabilities, gradients and logits groups evaluate."""
        return self.tried.likeliest

    @property
    def classifier_in_words(self) -> str:
        """How that classifier's penalty was chosen."""
        held_out = len(self.measured.parts[1])
        return f"l2 {self.classifier.l2:g} of least NLL on {held_out:,} held-out training images"

    @cached_property
    def held_out_logits(self) -> Tensor:
        return self.classifier.logits(self.part_features[1].double())

    @cached_property
    def test_logits(self) -> Tensor:
        """(m, K) float64 logits of the test images."""
        return self.classifier.logits(self.features(self.measured.test).double())

    @property
    def code_not_run(self) -> tuple[str, ...]:
        """A remark if the run is of a user-defined method class, which is never imported because of a run folder."""
        trained = self.subject.trained
        if trained is None or not isinstance(trained.config.method, RecordedSettings):
            return ()
        name = trained.config.method_name
        return (f"What {name} itself says of images, beyond its encoder, is left out: its code is not run to measure.",)

    @cached_property
    def method(self) -> Method | None:
        """The run's complete method with its weights, in eval mode; None if there is no run, or ``code_not_run``."""
        subject = self.subject
        if subject.trained is None or self.code_not_run:
            return None
        if subject.saved is not None:
            return method_from(subject.saved, subject.trained, self.device, subject.address)
        return load_trained_method(subject.run, subject.trained, self.device) if subject.run else None

    @cached_property
    def energies(self) -> Energies | None:
        """Energies of images by the whole method, or those that an export holds; None if there are none.

        A run's references are training images of this dataset.
        """
        if self.subject.energies is not None:
            energies = self.subject.energies.to(self.device)
            return replace(energies, batch_size=self.options.settings.batch_size)
        if not isinstance(self.method, ImageEnergy):
            return None
        energies = Energies(
            self.method,
            self.subject.preprocessing,
            torch.empty(0, 0),
            device=self.device,
            batch_size=self.options.settings.batch_size,
            where=self.subject.label,
        )
        train = limit(self.measured.train, REFERENCES)
        words = f"{len(train):,} training images of {short_name(self.measured.name)}, chosen by hash"
        return energies.with_references(train.images, words, self.on_progress)

    @property
    def has_own_classifier(self) -> bool:
        """Whether the run's method is itself a classifier, of the classes of this dataset."""
        trained = self.subject.trained
        on_own = trained is not None and trained.config.data.name == self.measured.name
        return on_own and isinstance(self.method, Classifier)

    def own_logits(self, images: ImageSet) -> Tensor:
        """Return the logits (n, K) float64 of the method's own classifier, on the CPU."""
        if not isinstance(self.method, Classifier):
            raise TypeError(f"a method that classifies is needed, got {type(self.method)}")
        what = f"the method's own classifier on {len(images):,} images of {images.name}"
        return self.compute(self.method.classify, images, what).double()

    def compute(self, encoder: Encoder, images: ImageSet, what: str) -> Tensor:
        """Return what ``encoder`` says of images (n, ...), float32 on the CPU, without keeping it."""
        return compute_features(
            encoder,
            images.images,
            self.subject.preprocessing,
            batch_size=self.options.settings.batch_size,
            device=self.device,
            on_progress=self.on_progress,
            what=what,
        )

    def two_views(self, encoder: Encoder, images: ImageSet) -> tuple[Tensor, Tensor]:
        """Return what ``encoder`` says of the two views of images that are the same for every encoder."""
        return two_views(
            encoder,
            images,
            self.subject.preprocessing,
            batch_size=self.options.settings.batch_size,
            device=self.device,
            on_progress=self.on_progress,
        )

    @cached_property
    def own_test_logits(self) -> Tensor:
        return self.own_logits(self.measured.test)


@dataclass(frozen=True)
class Need:
    """What a group cannot be measured without."""

    words: str  # in help and documentation
    problem: Callable[[Measuring], str]  # why a card lacks it; empty if it has it


LABELS = Need("labels", lambda measuring: measuring.measured.label_problem)

LABELS_OR_MARKS = Need(
    "labels",
    lambda measuring: "" if measuring.measured.may_have_several_labels else measuring.measured.label_problem,
)

OUTSIDE = Need(
    "--ood",
    lambda measuring: (
        "" if measuring.outside else "no images from outside were named; add --ood NAME, such as --ood rotated"
    ),
)

OTHER_DATASET = Need(
    "a second --dataset",
    lambda measuring: "" if measuring.others else "no other dataset was named; add a second --dataset",
)

ENERGY = Need("a method with an energy", lambda measuring: measuring.subject.energy_problem)

OWN_CLASSIFIER = "the classifier that the method trained with the encoder, on its training images and their labels"
"""Protocol of numbers of the method's own classifier."""


@dataclass(frozen=True)
class Group:
    """One group of a card, with its description for help, documentation and the card."""

    name: str  # as in ``--only``
    title: str
    doc: str
    source: str  # references of its protocols
    measure: Callable[[Measuring], Findings]
    needs: tuple[Need, ...] = ()  # without them the group is skipped, with an explanation
    looks_at: tuple[Part, ...] = ()  # images whose features it uses; Ray workers compute these before the group starts
    is_quick: bool = True  # whether it is measured by default, without ``--only``
    headline: str = ""  # name of the metric that represents the group in a summary; if empty, its first one

    def in_words(self) -> str:
        """Return one line with its description, its requirements, and whether it must be requested explicitly."""
        needs = f"; needs {' and '.join(need.words for need in self.needs)}" if self.needs else ""
        return f"{self.doc}{needs}{'' if self.is_quick else '; only when named, or with --only all'}"
