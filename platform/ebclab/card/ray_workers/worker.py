"""A Ray actor that computes features and measures groups; it does not access files of runs or cards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import ray

from ebclab.card.card import GroupResult
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measure import measure_group
from ebclab.card.measuring import CardOptions, FeatureStore, Measuring
from ebclab.card.subject import Subject
from ebclab.cluster.versions import Origin
from ebclab.config.yaml_text import JsonObject
from ebclab.data.image_set import ImageSet, read_only
from ebclab.errors import EbclabError
from ebclab.hardware import resolve_device, set_threads
from ebclab.runs.environment import describe_environment

_CARDS_AT_HAND = 2  # cards whose encoder, images and classifier a worker caches

_Set = TypeVar("_Set", MeasuredSet, OutsideSet)
Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class SentSet(Generic[_Set]):
    """A set whose images are in Ray's object store."""

    make: Callable[..., _Set]
    facts: tuple[str, ...]
    parts: tuple[ray.ObjectRef[ImageSet], ...]

    def get(self) -> _Set:
        """Return the set in a worker."""
        return self.make(*self.facts, *map(ray.get, self.parts))


@dataclass(frozen=True)
class SentCard:
    """Everything that a worker needs to evaluate one card."""

    number: int  # index of the card
    subject: ray.ObjectRef[Subject]  # without the folder of its run
    measured: SentSet[MeasuredSet]
    others: tuple[SentSet[MeasuredSet], ...]
    outside: tuple[SentSet[OutsideSet], ...]
    options: CardOptions
    device: str  # the setting ``resources.device``
    threads: int  # the setting ``resources.threads``; capped at the CPUs of a worker


@dataclass(frozen=True)
class WorkerResources:
    """Resources of every worker, and the command that started it."""

    cpus: int  # that it reserves, at least 1
    gpus: float  # that it reserves; may be a fraction
    origin: Origin  # machine and versions of the command; every worker must run the same versions
    command: tuple[str, ...]  # command line of the user
    workers: int  # number of workers


class CardWorker:
    """Runs one job at a time, and reports its progress meanwhile."""

    def __init__(self, resources: WorkerResources) -> None:
        self._resources = resources
        self._at_hand: OrderedDict[int, Measuring] = OrderedDict()
        self._progress: tuple[int, int, str] | None = None

    def hello(self) -> JsonObject:
        """Return the environment of this process: versions, machine, device, threads."""
        resources = self._resources
        resources.origin.require_same_here()
        device = resolve_device("cuda" if resources.gpus else "cpu")
        return describe_environment(device, resources.cpus, resources.workers, resources.command)

    def progress(self) -> tuple[int, int, str] | None:
        """Return the work done, the total work, and its description; None before the first report of a job."""
        return self._progress

    def compute(self, sent: SentCard, name: str) -> Array | EbclabError:
        """Return the features with this name, or the error if they cannot be computed."""
        measuring = self._measuring(sent)
        try:
            return measuring.features(measuring.images[name]).numpy()
        except EbclabError as error:
            return error
        except Exception as error:  # the text that ``measure_group`` reports within one process
            return EbclabError(f"{type(error).__name__}: {error}")

    def measure(
        self, sent: SentCard, group: str, key: str, features: Mapping[str, ray.ObjectRef[Array] | EbclabError]
    ) -> GroupResult:
        """Return the result of a group, with the features that it uses by name, or the error if there are none."""
        measuring = self._measuring(sent)
        for name, each in features.items():
            measuring.store.lend(name, each if isinstance(each, EbclabError) else read_only(ray.get(each)))
        return measure_group(group, key, measuring)

    def _measuring(self, sent: SentCard) -> Measuring:
        """Return a card with its cached results; sets the number of threads and clears the progress for its job."""
        self._progress = None
        resources = self._resources
        set_threads(min(sent.threads or resources.cpus, resources.cpus))
        if sent.number not in self._at_hand:
            if len(self._at_hand) >= _CARDS_AT_HAND:
                self._at_hand.popitem(last=False)
            device = resolve_device("cuda" if resources.gpus and sent.device != "cpu" else "cpu")
            self._at_hand[sent.number] = Measuring(
                ray.get(sent.subject),
                sent.measured.get(),
                sent.options,
                FeatureStore(None),
                device=device,
                on_progress=self._note,
                others=tuple(each.get() for each in sent.others),
                outside=tuple(each.get() for each in sent.outside),
            )
        self._at_hand.move_to_end(sent.number)
        return self._at_hand[sent.number]

    def _note(self, done: int, total: int, what: str) -> None:
        self._progress = (done, total, what)
