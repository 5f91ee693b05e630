"""A made-up encoder on made-up images, with everything that a group of a card is given."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measuring import CardOptions, FeatureStore, Measuring
from ebclab.card.subject import Subject
from ebclab.config.sections import EvaluationConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.progress import silent


def made_up_images(count: int, *, classes: int = 3, side: int = 4, seed: int = 0, noise: float = 60.0) -> ImageSet:
    """Return grey images of classes that differ in which columns are bright, with noise that makes some look alike."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    pixels = torch.randn(count, 1, side, side, generator=generator) * noise + 90
    pixels[torch.arange(count), 0, :, labels % side] += 70
    keys = torch.arange(count) + 1_000_000 * seed
    images = pixels.clamp(0, 255).round().to(torch.uint8)
    return ImageSet("made-up", images, labels, keys, tuple("abcdefgh"[:classes]), (0.4,), (0.25,))


def made_up_set(
    train: int = 240, test: int = 90, *, classes: int = 3, side: int = 4, noise: float = 60.0
) -> MeasuredSet:
    """Return training and test images."""
    parts = (made_up_images(n, classes=classes, side=side, seed=s, noise=noise) for n, s in ((train, 0), (test, 1)))
    return MeasuredSet("made-up", *parts)


class MadeUpEncoder(nn.Module):
    """A small network with batch norm: embeddings (B, D) of grey images.

    Args:
        side: Pixels of an image's side.
        size: D.
    """

    def __init__(self, side: int = 4, size: int = 12) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(side * side, size), nn.BatchNorm1d(size), nn.Tanh())

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings."""
        out: Tensor = self.layers(images)
        return out


def measuring_of(
    subject: Subject,
    data: MeasuredSet,
    options: CardOptions | None = None,
    *,
    folder: Path | None = None,
    others: tuple[MeasuredSet, ...] = (),
    outside: tuple[OutsideSet, ...] = (),
    **given: Any,
) -> Measuring:
    """Return what a group is given; without options they are ``given``, with five neighbours of kNN."""
    return Measuring(
        subject,
        data,
        options or CardOptions(EvaluationConfig(knn_neighbours=5), **given),
        FeatureStore(folder),
        device=torch.device("cpu"),
        on_progress=silent,
        others=others,
        outside=outside,
    )


def made_up_measuring(
    encoder: nn.Module, data: MeasuredSet, options: CardOptions | None = None, *, side: int = 4, read_size: int = 0
) -> Measuring:
    """Return what a group is given to measure ``encoder`` on ``data``."""
    preprocessing = Preprocessing(side, (0.4,), (0.25,), read_size)
    subject = Subject("made up", "nowhere", encoder.eval(), preprocessing, 1, "a test", f"made up {id(encoder)}")
    return measuring_of(subject, data, options or CardOptions(EvaluationConfig(batch_size=64)))
