"""A Ray actor that computes features and measures groups; it does not access files of runs or cards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import ray
import torch

from ebclab.card.card import GroupResult
from ebclab.card.feature_store import FeatureStore
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measure import measure_group
from ebclab.card.measuring import CardOptions, Measuring, Part
from ebclab.card.subject import Subject
from ebclab.cluster.versions import Origin
from ebclab.data.image_set import ImageArrays, ImageSet, read_only
from ebclab.errors import EbclabError
from ebclab.hardware import resolve_device, set_threads
from ebclab.runs.environment import describe_environment

_CARDS_AT_HAND = 2  # cards whose encoder, images and classifier a worker caches

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class SentImages:
    """References to the image sets of a card in Ray's object store."""

    measured: tuple[str, ray.ObjectRef[ImageArrays], ray.ObjectRef[ImageArrays]]
    others: tuple[tuple[str, ray.ObjectRef[ImageArrays], ray.ObjectRef[ImageArrays]], ...]
    outside: tuple[tuple[str, Any, ray.ObjectRef[ImageArrays], ray.ObjectRef[ImageArrays]], ...]


@dataclass(frozen=True)
class SentCard:
    """Everything that a worker needs to evaluate one card."""

    number: int  # index of the card
    subject: ray.ObjectRef[Subject]  # without the folder of its run
    images: SentImages
    options: CardOptions
    device: str  # the setting ``resources.device``
    threads: int  # the setting ``resources.threads``; capped at the CPUs of a worker


@dataclass(frozen=True)
class Given:
    """Resources of every worker, and the command that started it."""

    cpus: int  # that it reserves, at least 1
    gpus: float  # that it reserves; may be a fraction
    origin: Origin  # machine and versions of the command; every worker must run the same versions
    command: tuple[str, ...]  # command line of the user
    workers: int  # number of workers


class CardWorker:
    """Runs one job at a time, and reports its progress meanwhile."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._at_hand: OrderedDict[int, _CardAtHand] = OrderedDict()
        self._progress: tuple[int, int, str] | None = None

    def hello(self) -> dict[str, Any]:
        """Return the environment of this process: versions, machine, device, threads."""
        self._given.origin.require_same_here()
        device = resolve_device("cuda" if self._given.gpus else "cpu")
        return describe_environment(device, self._given.cpus, self._given.workers, self._given.command)

    def progress(self) -> tuple[int, int, str] | None:
        """Return the work done, the total work, and its description; None before the first report of a job."""
        return self._progress

    def compute(self, sent: SentCard, name: str) -> Array | EbclabError:
        """Return the features with this name, or the error if they cannot be computed."""
        card = self._card(sent)
        try:
            return card.measuring.features(card.images[name]).numpy()
        except EbclabError as error:
            return error
        except Exception as error:  # the text that ``measure_group`` reports within one process
            return EbclabError(f"{type(error).__name__}: {error}")

    def measure(
        self, sent: SentCard, group: str, key: str, features: Mapping[str, ray.ObjectRef[Array] | EbclabError]
    ) -> GroupResult:
        """Return the result of a group."""
        measuring = self._card(sent).measuring
        measuring.store.lend(
            {
                name: each if isinstance(each, EbclabError) else read_only(ray.get(each))
                for name, each in features.items()
            }
        )
        return measure_group(group, key, measuring)

    def _card(self, sent: SentCard) -> _CardAtHand:
        """Return a card with its cached results; sets the number of threads and clears the progress for its job."""
        self._progress = None
        set_threads(min(sent.threads or self._given.cpus, self._given.cpus))
        if sent.number not in self._at_hand:
            if len(self._at_hand) >= _CARDS_AT_HAND:
                self._at_hand.popitem(last=False)
            device = resolve_device("cuda" if self._given.gpus and sent.device != "cpu" else "cpu")
            self._at_hand[sent.number] = _CardAtHand(_measuring(sent, device, self._note))
        self._at_hand.move_to_end(sent.number)
        return self._at_hand[sent.number]

    def _note(self, done: int, total: int, what: str) -> None:
        self._progress = (done, total, what)


@dataclass(frozen=True)
class _CardAtHand:
    measuring: Measuring

    @cached_property
    def images(self) -> dict[str, ImageSet]:
        """All image sets of the card, keyed by the names of their features."""
        return {name: images for part in get_args(Part) for name, images in self.measuring.images_of(part).items()}


def _measuring(sent: SentCard, device: torch.device, note: Any) -> Measuring:
    def images(reference: ray.ObjectRef[ImageArrays]) -> ImageSet:
        return ray.get(reference).image_set()

    def whole(name: str, train: ray.ObjectRef[ImageArrays], test: ray.ObjectRef[ImageArrays]) -> MeasuredSet:
        return MeasuredSet(name, images(train), images(test))

    return Measuring(
        ray.get(sent.subject),
        whole(*sent.images.measured),
        sent.options,
        FeatureStore(None, device, sent.options.settings.batch_size),
        device=device,
        on_progress=note,
        others=tuple(whole(*each) for each in sent.images.others),
        outside=tuple(
            OutsideSet(name, kind, images(outside), images(inside))
            for name, kind, outside, inside in sent.images.outside
        ),
    )
