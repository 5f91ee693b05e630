"""Raw pixels and the untrained encoder: their scores beside those of runs, as a folder keeps them.

Pages show them, and import no torch; ``measured_references.py`` measures them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ebclab.config import ExperimentConfig
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import Measurements
from ebclab.storage import atomic
from ebclab.storage.reading import read_typed, with_checksum

PIXELS: Literal["raw pixels"] = "raw pixels"
UNTRAINED: Literal["untrained encoder"] = "untrained encoder"
Name = Literal["raw pixels", "untrained encoder"]
REFERENCES: tuple[Name, ...] = (PIXELS, UNTRAINED)
THE: dict[str, str] = {PIXELS: "raw pixels", UNTRAINED: "the untrained encoder"}
"""References within a sentence."""
FILE = "references.json"
_OF_KNN = ("knn_neighbours", "knn_temperature")
_OF_DATA = ("name", "resize", "decoding", "colour", "skip_corrupt", "image_column", "label_column")


class Protocol(NamedTuple):
    """What runs are measured by on the test images."""

    config: ExperimentConfig  # of the runs, with any seed
    train_limit: int  # labelled training images, chosen by hash; 0: all
    probe: str  # name of the probe

    def key(self, name: Name) -> str:
        """Return a digest of all that decides what a reference scores, except for its seed."""
        config = self.config
        data, settings, views = asdict(config.data), asdict(config.evaluation), config.views
        of_probe = [each for each in settings if each.startswith("linear_")] if self.probe != "knn" else _OF_KNN
        facts: list[Any] = [self.train_limit, self.probe, *(data[each] for each in _OF_DATA)]
        facts += [data["labels"]] if data["labels"] else []
        facts += [settings[each] for each in of_probe]
        if name == UNTRAINED:
            facts += [asdict(config.encoder), views.image_size, views.normalisation]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Reference:
    """What one reference scores on the test images."""

    name: Name
    key: str  # digest of its protocol
    seed: int  # of the initial weights; 0 for raw pixels
    value: float  # accuracy, in [0, 1]
    answers: Answers  # which test images it is right about


@dataclass(frozen=True)
class References:
    """The references that a folder keeps: the content of the file."""

    references: tuple[Reference, ...] = ()
    format: Literal[1] = 1

    @classmethod
    def read(cls, path: Path, where: str = "") -> References:
        """Return the references in a file; none if there is no file."""
        if not path.exists():
            return cls()
        remedy = "delete the file; the command that made it measures them again"
        return read_typed(path, cls, where, what="not the references of runs", remedy=remedy)

    def write(self, path: Path) -> None:
        """Write the file."""
        rows = [asdict(each) | {"answers": each.answers.to_mapping()} for each in self.references]
        atomic.write_json(path, with_checksum({"format": self.format, "references": rows}))

    def scores(self, name: Name, protocol: Protocol, seeds: Sequence[int]) -> Measurements | None:
        """Return what a reference scores beside runs of these seeds; None if that is not measured.

        Raw pixels have no seed: they are the same beside each run.
        """
        key = protocol.key(name)
        by_seed = {each.seed: each for each in self.references if (each.name, each.key) == (name, key)}
        found = {seed: by_seed.get(seed_of(name, seed)) for seed in seeds}
        there = {seed: each for seed, each in found.items() if each is not None}
        if not there:
            return None
        return Measurements.of(
            list(there), [each.value for each in there.values()], [each.answers for each in there.values()]
        )


def seed_of(name: Name, seed: int) -> int:
    """Return the seed of a reference beside a run of this seed: raw pixels have none."""
    return seed if name == UNTRAINED else 0
