"""What a group of a card works with: the encoder, the images, their features, a classifier on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ebclab.card.feature_store import FeatureStore
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.results import Findings
from ebclab.card.subject import Subject
from ebclab.config.experiment import RecordedSettings
from ebclab.config.sections import EvaluationConfig
from ebclab.data.image_set import ImageSet
from ebclab.errors import DataError
from ebclab.evaluation.linear_head import LinearClassifier, best_classifier
from ebclab.evaluation.progress import OnProgress
from ebclab.evaluation.protocols import LBFGS
from ebclab.training.trained_method import load_trained_method, method_from
from energy_contrast.method import Method

Need = Literal["labels", "outside", "other dataset"]

Part = Literal["train", "test", "other", "outside"]
"""Images of a card: its training and test images, those of further datasets, and those of ``--ood``."""


@dataclass(frozen=True)
class CardOptions:
    """What the user asked for, beside encoders and images.

    Attributes:
        settings: Neighbours, temperature, linear protocol, penalty, batch size.
        seeds: Seeds of what is random in a protocol: 0, 1 and so on.
        attacked_images: Test images that attacks are tried on, chosen by hash; 0 means all.
        autoattack: AutoAttack, too, which takes many times as long as all other attacks together.
        fine_tuning_epochs: Passes over the labelled images while all weights are trained, at least 1; a few labels are
            passed more often.
    """

    settings: EvaluationConfig
    seeds: int = 3
    attacked_images: int = 1_000
    autoattack: bool = False
    fine_tuning_epochs: int = 10


@dataclass(frozen=True)
class GroupInfo:
    """What a group is, for help, documentation and the card.

    Attributes:
        name: Key, as ``--only`` takes it.
        title: Heading.
        doc: One line for people.
        source: Where its protocols come from.
        needs: What it cannot do without; it is left out, with a sentence, where that is missing.
        looks_at: Images whose features it asks for: they are computed before it begins, where groups are spread.
        is_quick: Measured when nothing is asked for by name.
        headline: Name of the number that stands for the group in a sentence; its first one where this is empty.
    """

    name: str
    title: str
    doc: str
    source: str
    needs: tuple[Need, ...] = ()
    looks_at: tuple[Part, ...] = ()
    is_quick: bool = True
    headline: str = ""

    def in_words(self) -> str:
        """Return one line about it: what it is, what it needs, and whether it must be asked for."""
        words: dict[Need, str] = {"labels": "labels", "outside": "--ood", "other dataset": "a second --dataset"}
        needs = f"; needs {' and '.join(words[need] for need in self.needs)}" if self.needs else ""
        return f"{self.doc}{needs}{'' if self.is_quick else '; only when named, or with --only all'}"


class Measuring:
    """One encoder on one dataset, with everything that groups share; what is costly is computed once.

    Args:
        subject: The encoder.
        measured: Training and test images.
        options: What the user asked for.
        store: Features that are known already.
        device: Where to compute.
        on_progress: Called with work done, work in all and what it is.
        others: Datasets that the encoder is transferred to.
        outside: Images that it should notice as none of its own.
    """

    def __init__(
        self,
        subject: Subject,
        measured: MeasuredSet,
        options: CardOptions,
        store: FeatureStore,
        *,
        device: torch.device,
        on_progress: OnProgress,
        others: tuple[MeasuredSet, ...] = (),
        outside: tuple[OutsideSet, ...] = (),
    ) -> None:
        self.subject = subject
        self.measured = measured
        self.options = options
        self.device = device
        self.on_progress = on_progress
        self.others = others
        self.outside = outside
        self.store = store

    def elsewhere(self, other: MeasuredSet) -> Measuring:
        """Return what measures the same encoder on another dataset, without images from outside."""
        return Measuring(
            self.subject, other, self.options, self.store, device=self.device, on_progress=self.on_progress
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of what is random in a protocol."""
        return tuple(range(self.options.seeds))

    def features(self, images: ImageSet) -> Tensor:
        """Return the frozen encoder's embeddings (n, D) float32 of images, on the CPU."""
        return self.store.features(self.subject, images, self.on_progress)

    def images_of(self, part: Part) -> dict[str, ImageSet]:
        """Return the image sets of a part of the card by the names of their features."""
        sets = {
            "train": [self.measured.train],
            "test": [self.measured.test],
            "other": [images for other in self.others for images in (other.train, other.test)],
            "outside": [images for each in self.outside for images in (each.outside, each.inside)],
        }[part]
        return {self.store.name(self.subject, images): images for images in sets}

    @cached_property
    def part_features(self) -> tuple[Tensor, Tensor]:
        """The features of both ``parts`` of the training images, cut from those of all: none is looked at twice."""
        features, held_out = self.features(self.measured.train), self.measured.is_held_out
        return features[~held_out], features[held_out]

    @cached_property
    def classifier(self) -> LinearClassifier:
        """The linear classifier whose probabilities are looked at: penalty chosen, and fitted, without the test set."""
        fitted, held_out = self.measured.parts
        if len(held_out) == 0:
            raise DataError(
                f"{self.measured.name}: a tenth of the training images is held out to choose a penalty and a "
                f"temperature, which is none of {len(self.measured.train)}; measure on a larger set"
            )
        x, held_x = self.part_features
        y, classes = fitted.labels, self.measured.num_classes
        return best_classifier(LBFGS, (x, y), (held_x, held_out.labels), classes, self.on_progress)

    @cached_property
    def held_out_logits(self) -> Tensor:
        """(h, K) float64 logits of the held-out training images."""
        return self.classifier.head.logits(self.part_features[1].double())

    @cached_property
    def test_logits(self) -> Tensor:
        """(m, K) float64 logits of the test images."""
        return self.classifier.head.logits(self.features(self.measured.test).double())

    @property
    def code_not_run(self) -> tuple[str, ...]:
        """A remark where the run is of a class of somebody's own, which a run folder does not get to import."""
        trained = self.subject.trained
        if trained is None or not isinstance(trained.config.method, RecordedSettings):
            return ()
        name = trained.config.method_name
        return (f"What {name} itself says of images, beyond its encoder, is left out: its code is not run to measure.",)

    @cached_property
    def method(self) -> Method | None:
        """The run's whole method with its weights, in eval mode; None for what is no run, or ``code_not_run``."""
        subject = self.subject
        if subject.trained is None or self.code_not_run:
            return None
        if subject.saved is not None:
            return method_from(subject.saved, subject.trained, self.device, subject.address)
        return load_trained_method(subject.run, subject.trained, self.device) if subject.run else None


class Group(NamedTuple):
    """One group of a card.

    Attributes:
        info: What it is.
        measure: Measures it.
    """

    info: GroupInfo
    measure: Callable[[Measuring], Findings]
