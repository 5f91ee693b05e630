"""Pictures and measures of samples: contrast, variety, a classifier of real images, the nearest training image.

All but saturation measure pixels as a picture shows them: black 0, white 1, what lies beyond is cut.

Shapes: n training images, m samples, C channels, H x W pixels, D = C H W, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from ebclab.data.image_grid import Tile, draw_grid
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.linear import LinearHead, fit_head
from ebclab.evaluation.progress import OnProgress, silent
from energy_contrast.chains.restarts import saturated_share
from energy_contrast.method import PixelRange
from energy_contrast.sampling_method import ChainTrace

_AT_ONCE = 1024  # training images
_JUDGED_ON = 10_000  # training images of the classifier, chosen at random
_PAIRED = 2_000  # samples, all pairs of which are compared
_SIDE = 32  # of the pixels that the classifier reads, at most


def levels(images: Tensor, pixel_range: PixelRange) -> Tensor:
    """Return pixels (m, C, H, W) in [0, 1], black 0 and white 1."""
    low, high = (images.new_tensor(level).view(-1, 1, 1) for level in pixel_range)
    return ((images - low) / (high - low)).clamp(0, 1)


def as_bytes(images: Tensor, pixel_range: PixelRange) -> Tensor:
    """Return pixels (..., C, H, W) as uint8, black 0 and white 255."""
    return (levels(images, pixel_range) * 255).round().to(torch.uint8).cpu()


def draw_chains(trace: ChainTrace, pixel_range: PixelRange) -> Image.Image:
    """Return a picture of chains: rows are chains, columns are recorded steps, each with its energy."""
    images = as_bytes(trace.positions, pixel_range).transpose(0, 1)  # (chains, steps, C, H, W)
    rows = [
        [Tile(image, f"E {energy:.2f}") for image, energy in zip(row, energies, strict=True)]
        for row, energies in zip(images, trace.energies.T.tolist(), strict=True)
    ]
    return draw_grid(rows, heads=[f"step {step}" for step in trace.steps])


def diversity(pixels: Tensor) -> float | None:
    """Return the mean distance, root mean square over pixels, of two of the first 2,000 samples; None of one alone."""
    flat = pixels[:_PAIRED].flatten(1)
    return float(torch.pdist(flat.double()).mean()) / math.sqrt(flat.shape[1]) if len(flat) > 1 else None


def nearest_distances(
    pixels: Tensor, train: ImageSet, preprocessing: Preprocessing, on_progress: OnProgress = silent
) -> Tensor:
    """Return the distances (m,), root mean square over pixels, of samples to the nearest training image."""
    queries = pixels.flatten(1)
    best = queries.new_full((len(queries),), math.inf)
    for begun, block in _blocks(train.images, preprocessing, pixels.device):
        near = torch.cdist(queries, block.flatten(1)).min(dim=1).indices  # rounded; the distance is taken anew
        best = torch.minimum(best, (queries - block.flatten(1)[near]).square().mean(dim=1).sqrt())
        on_progress(min(begun + _AT_ONCE, len(train)), len(train), "nearest training images")
    return best.cpu()


class JudgeFacts(TypedDict):
    """What a judge is, as plain values."""

    kind: str
    side: int  # pixels
    train_images: int
    test_images: int
    test_accuracy: float | None  # None without a test image of its classes


@dataclass(frozen=True)
class Judge:
    """A classifier of real images: multinomial logistic regression on their pixels."""

    head: LinearHead
    classes: Tensor  # (K,) the label of each column
    num_train: int  # training images that it was fitted on
    side: int  # of the images that it reads, pixels

    def answers(self, pixels: Tensor) -> Tensor:
        """Return the probabilities (m, K) of the classes of images, as ``levels`` returns them."""
        return self.head.logits(_shrunk(pixels, self.side).cpu().double()).softmax(dim=1)

    def shares(self, answers: Tensor, names: tuple[str, ...]) -> dict[str, float]:
        """Return the share of answers (m, K) that name each class, by its name, or by its label if it has none."""
        counts = torch.bincount(answers.argmax(dim=1), minlength=len(self.classes)) / len(answers)
        labels = [names[label] if label < len(names) else str(label) for label in self.classes.tolist()]
        return dict(zip(labels, counts.tolist(), strict=True))

    def facts(self, test: ImageSet, preprocessing: Preprocessing) -> JudgeFacts:
        """Return what it is, and its accuracy on at most 10,000 test images of its classes."""
        known = test.rows(torch.isin(test.labels, self.classes))
        few = known.rows(torch.randperm(len(known), generator=torch.Generator().manual_seed(0))[:_JUDGED_ON])
        blocks = _blocks(few.images, preprocessing, torch.device("cpu"))
        named = [self.classes[self.answers(block).argmax(dim=1)] for _, block in blocks]
        right = torch.cat([*named, self.classes[:0]]) == few.labels.cpu()
        return {
            "kind": "multinomial logistic regression on pixels",
            "side": self.side,
            "train_images": self.num_train,
            "test_images": len(few),
            "test_accuracy": float(right.double().mean()) if named else None,
        }


def fit_judge(
    train: ImageSet, preprocessing: Preprocessing, l2: float, on_progress: OnProgress = silent
) -> Judge | None:
    """Return the classifier, fitted on labelled training images; None without labels of two classes."""
    labelled = train.rows(train.labels >= 0)
    if train.marks is not None or len(labelled) == 0 or (labelled.labels == labelled.labels[0]).all():
        return None
    chosen = torch.randperm(len(labelled), generator=torch.Generator().manual_seed(0))[:_JUDGED_ON]
    few, side = labelled.rows(chosen), min(preprocessing.image_size, _SIDE)
    classes, labels = torch.unique(few.labels.cpu(), return_inverse=True)
    pixels = [_shrunk(block, side) for _, block in _blocks(few.images, preprocessing, torch.device("cpu"))]
    on_progress(0, 1, "classifier of pixels")
    head = fit_head(torch.cat(pixels), labels, len(classes), l2)
    on_progress(1, 1, "classifier of pixels")
    return Judge(head, classes, len(few), side)


@dataclass(frozen=True)
class SampleMeasures:
    """Measures of images; None where there is nothing to measure by."""

    saturation: float  # share of pixels clearly beyond black or white
    energy: float  # mean, nats
    energy_std: float | None  # over images
    diversity: float | None  # mean distance of two images
    nearest: float  # mean distance to the nearest training image
    entropy: float | None  # mean of the classifier's answer to an image, nats
    # share of images by the class that the classifier names, for each of its classes
    class_shares: dict[str, float] | None


def measure_samples(
    images: Tensor,
    energies: Tensor,
    train: ImageSet,
    preprocessing: Preprocessing,
    judge: Judge | None,
    on_progress: OnProgress = silent,
) -> SampleMeasures:
    """Return the measures of samples (m, C, H, W), as the method takes them, and their energies (m,) in nats."""
    pixels = levels(images, preprocessing.pixel_range)
    answers = judge.answers(pixels) if judge else None
    return SampleMeasures(
        saturation=float(saturated_share(images, preprocessing.pixel_range)),
        energy=float(energies.double().mean()),
        energy_std=float(energies.double().std()) if len(energies) > 1 else None,
        diversity=diversity(pixels),
        nearest=float(nearest_distances(pixels, train, preprocessing, on_progress).double().mean()),
        entropy=None if answers is None else float(torch.special.entr(answers).sum(dim=1).mean()),
        class_shares=None if answers is None or judge is None else judge.shares(answers, train.class_names),
    )


def _blocks(images: Tensor, preprocessing: Preprocessing, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Yield (first row, pixels as ``levels`` returns them) of stored images, some at a time."""
    for begun in range(0, len(images), _AT_ONCE):
        prepared = preprocessing(images[begun : begun + _AT_ONCE].to(device))
        yield begun, levels(prepared, preprocessing.pixel_range)


def _shrunk(pixels: Tensor, side: int) -> Tensor:
    if max(pixels.shape[-2:]) > side:
        pixels = functional.interpolate(pixels, (side, side), mode="bilinear", antialias=True)
    return pixels.flatten(1)
