"""A made-up dataset, and encoders that need no training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_card import measuring_of
from made_up_images import encoded, pixels, put
from torch import Tensor, nn
from torch.nn import functional

from ebclab.card.images import MeasuredSet
from ebclab.card.measuring import CardOptions, Measuring
from ebclab.card.subject import Subject
from ebclab.config.sections import EvaluationConfig
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.preprocessing import Preprocessing
from energy_contrast.sampling_method import PairEnergy

FILES = [f"{part}/{kind}/{number}.png" for part in ("train", "test") for kind in ("cat", "dog") for number in range(3)]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Write the folder ``photos``, whose parts have files of the same names, and return the pixels of each file."""
    monkeypatch.chdir(tmp_path)
    images = {file: pixels(seed, 6, 6) for seed, file in enumerate(FILES)}
    for file, image in images.items():
        put(Path("photos", file), encoded(image))
    return images


def striped(name: str, count: int, first_key: int, seed: int) -> ImageSet:
    """Return noisy 6 x 6 grey images of three classes: a bright row, a bright column, or neither."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = torch.randint(0, 120, (count, 1, 6, 6), generator=generator, dtype=torch.uint8)
    images[labels == 0, :, 2] += 120
    images[labels == 1, :, :, 3] += 120
    mean, std = channel_statistics(images)
    keys = torch.arange(first_key, first_key + count)
    return ImageSet(name, images, labels, keys, ("row", "column", "neither"), mean, std)


class Doubling(nn.Module):
    """Pixels times a weight, through a batch norm whose statistics must not move."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(36)
        self.weight = nn.Parameter(torch.tensor(2.0))
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        embedding: Tensor = self.norm(self.weight * images.flatten(1))
        return embedding


class Cosines(PairEnergy):
    """Energies by the cosines of embeddings."""

    def __init__(self, encoder: nn.Module) -> None:
        self.encoder = encoder

    def encode_references(self, images: Tensor) -> Tensor:
        return functional.normalize(self.encoder(images), dim=1)

    def encode_second(self, images: Tensor) -> Tensor:
        return self.encode_references(images)

    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        return -torch.logsumexp(self.encode_references(images) @ references.T, dim=1)

    def pair_energy(self, first: Tensor, second: Tensor) -> Tensor:
        return -(first @ second.T)


@pytest.fixture
def measured() -> MeasuredSet:
    """Return 240 training and 90 test images of three classes."""
    return MeasuredSet("stripes", striped("stripes", 240, 0, 1), striped("stripes", 90, 1_000, 2))


@pytest.fixture
def subject() -> Subject:
    """Return an encoder that is of no run."""
    encoder, seen = Doubling().eval(), Preprocessing(6, (0.5,), (0.25,))
    made = Subject("doubling", "doubling", encoder, seen, 1, "made up", "doubling")
    return replace(made, random_weights=lambda seed: Doubling())


MakeMeasuring = Callable[..., Measuring]


@pytest.fixture
def make(measured: MeasuredSet, subject: Subject) -> MakeMeasuring:
    """Return a function that makes what groups work with; its arguments replace those of ``Measuring``."""

    def made(folder: Path | None = None, **changes: Any) -> Measuring:
        options = CardOptions(EvaluationConfig(knn_neighbours=5), seeds=2, attacked_images=20)
        given = {"subject": subject, "measured": measured, "options": options, **changes}
        return measuring_of(given.pop("subject"), given.pop("measured"), folder=folder, **given)

    return made
