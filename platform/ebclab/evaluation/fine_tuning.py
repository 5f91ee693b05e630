"""Fine-tuning: all weights of an encoder and a new linear layer are trained on labelled images.

``L = mean over a batch of -log softmax(W f(view) + b)_y``, minimised by a protocol of ``FINE_TUNING``, without weight
decay; for images with several labels, the mean over their marks that count of ``log(1 + exp(-t (W f(view) + b)_k))``, t
= 1 if an image has class k, else -1. The given encoder is not modified: a copy of it is trained.

Shapes: n labelled images, m others, B images of a batch, D features, K classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ebclab.config.sections import USUAL_VIEWS, VIEW_RECIPES, ViewsConfig
from ebclab.data.hashing import hash_words
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.pipeline import make_views
from ebclab.errors import DataError, DivergedError
from ebclab.evaluation.features import check_images, compute_features
from ebclab.evaluation.multi_label import mean_precision
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import FINE_TUNING, FineTuningProtocol
from ebclab.hardware import draws_put_back
from ebclab.optimization.optimizers import eager
from ebclab.optimization.schedules import learning_rate_at

LEAST_STEPS = 200
"""Minimum number of optimizer steps, however few images there are."""

_ORDER_SALT = 0x66696E6574756E65
_LAYER_SALT = 0x6E65776C61796572


@dataclass(frozen=True)
class FineTuningTask:
    """Settings that are the same for every encoder that is fine-tuned on a dataset."""

    num_classes: int  # K
    preprocessing: Preprocessing
    views: ViewsConfig  # augmentation of training images
    epochs: int  # passes over the labelled images, but no fewer than ``LEAST_STEPS`` steps
    batch_size: int  # images per forward pass in prediction
    device: torch.device
    protocol: FineTuningProtocol = FINE_TUNING["simclr"]

    def epochs_for(self, count: int) -> int:
        """Return the number of passes over ``count`` labelled images."""
        return max(self.epochs, math.ceil(LEAST_STEPS / self.batches(count)))

    @property
    def in_words(self) -> str:
        """The recipe in words, complete enough to reproduce it."""
        flips, chosen = "flips half of the time" if self.views.flip_rate else "no flips", self.protocol
        tested = f"; tested on the central {100 * chosen.test_crop:g} % of each side" if chosen.test_crop < 1 else ""
        return (
            f"all weights and a new linear layer, {chosen.optimizer_in_words}, no weight decay, batches of "
            f"{chosen.batch_size}, {self.epochs} epochs and no fewer than {LEAST_STEPS} steps, batch norm in training "
            f"mode, crops of {100 * chosen.smallest_crop:g} to 100 % of the area, {flips}{tested}"
        )

    def batches(self, count: int) -> int:
        """Return the number of batches of an epoch of ``count`` images."""
        return math.ceil(count / self.protocol.batch_size)


class ChosenRate(NamedTuple):
    """The learning rate that was best on held-out images."""

    rate: float
    # held-out, or mean AP, of each rate of the protocol, 0 if training diverged; empty if nothing was chosen
    accuracies: tuple[float, ...]


def light_views(dataset: str, protocol: FineTuningProtocol = FINE_TUNING["simclr"]) -> ViewsConfig:
    """Return the views that fine-tuning trains on, the same for every encoder.

    Images are flipped if the dataset's usual views flip them; images of unknown datasets are not, since a mirror image
    may have a different label. A protocol may flip all.
    """
    usual = USUAL_VIEWS.get(dataset)
    flip_rate = VIEW_RECIPES[usual].settings["flip_rate"] if usual else 0.0
    if protocol.flips_all:
        flip_rate = 0.5
    return ViewsConfig(crop_scale_min=protocol.smallest_crop, flip_rate=flip_rate)


def fine_tuned(
    encoder: nn.Module,
    labelled: ImageSet,
    task: FineTuningTask,
    *,
    rate: float,
    seed: int,
    on_progress: OnProgress = silent,
    what: str = "fine-tuning",
) -> nn.Module:
    """Return a trained copy of ``encoder`` with a linear layer, from preprocessed images (B, C, H, W) to logits (B, K).

    On a CPU, the same arguments give bitwise identical results: the order of the images and their views are derived
    from hashes, and all other random numbers are drawn from torch's generator, seeded with ``seed`` and restored
    afterwards. The seed is that of the linear layer, the order of the images, their views, and dropout.
    """
    check_images(labelled.images, task.preprocessing)
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        raise DataError(f"fine-tuning: an encoder with weights to train is needed, {type(encoder).__name__} has none")
    with draws_put_back(task.device):
        torch.manual_seed(int(hash_words(_LAYER_SALT, seed)))  # other random numbers than a new encoder's weights
        copied = copy.deepcopy(encoder).to(task.device)
        one = compute_features(copied, labelled.images[:1], task.preprocessing, batch_size=1, device=task.device)
        layer = nn.Linear(one.shape[1], task.num_classes)
        model: nn.Sequential = (
            nn.Sequential(copied, layer.to(task.device)).to(memory_format=torch.channels_last).train()
        )
        optimizer = _optimizer(model, task.protocol, rate)
        epochs, steps = task.epochs_for(len(labelled)), task.batches(len(labelled))
        for epoch in range(epochs):
            for step, rows in enumerate(_epoch(labelled.keys, seed, epoch, steps)):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate_at(
                        epoch * steps + step,
                        peak=rate,
                        num_steps=epochs * steps,
                        warmup_steps=0,
                        schedule=task.protocol.schedule,
                        final_rate=0.0,
                    )
                _step(model, optimizer, labelled.rows(rows), task, seed, epoch)
            on_progress(epoch + 1, epochs, what)
    return model.eval()


def predicted_logits(model: nn.Module, images: ImageSet, task: FineTuningTask) -> Tensor:
    """Return the logits (m, K) of each image, without augmentation."""
    pixels, seen = images.images, task.preprocessing
    if task.protocol.test_crop < 1:
        pixels = _central(pixels, task.protocol.test_crop)
        seen = replace(seen, read_size=seen.image_size if seen.read_size else 0)  # scaled once
    try:
        return compute_features(model, pixels, seen, batch_size=task.batch_size, device=task.device)
    except DivergedError as error:
        raise DivergedError(
            f"fine-tuning: training diverged, the network gives NaN or infinity for images of {images.name}; the "
            f"encoder's features are too large for rates of {min(task.protocol.rates):g} and more"
        ) from error


def choose_rate(
    encoder: nn.Module,
    fitted: ImageSet,
    held_out: ImageSet,
    task: FineTuningTask,
    *,
    seed: int,
    on_progress: OnProgress = silent,
    what: str = "fine-tuning",
) -> ChosenRate:
    """Return the learning rate with which a fine-tuned copy of ``encoder`` has the highest held-out accuracy.

    If no images are held out, it is the first rate.
    """
    rates = task.protocol.rates
    if len(held_out) == 0 or len(rates) == 1:
        return ChosenRate(rates[0], ())
    accuracies = []
    for rate in rates:
        named = f"{what}, rate {rate:g}"
        model = fine_tuned(encoder, fitted, task, rate=rate, seed=seed, on_progress=on_progress, what=named)
        try:
            accuracies.append(_score(predicted_logits(model, held_out, task), held_out))
        except DivergedError:
            accuracies.append(0.0)
    best = max(range(len(rates)), key=lambda place: accuracies[place])  # the first of equals
    return ChosenRate(rates[best], tuple(accuracies))


def _score(logits: Tensor, images: ImageSet) -> float:
    if images.marks is not None:
        return mean_precision(logits.double(), images.marks, images.class_names)
    return float((logits.argmax(dim=1) == images.labels).double().mean())


def _loss(logits: Tensor, batch: ImageSet) -> Tensor:
    if batch.marks is None:
        return functional.cross_entropy(logits, batch.labels.to(logits.device))
    marks = batch.marks.to(logits)
    counts = (marks >= 0).to(logits)
    found = functional.binary_cross_entropy_with_logits(logits, marks.clamp(min=0), counts, reduction="sum")
    return found / counts.sum().clamp(min=1)


def _central(images: Tensor, share: float) -> Tensor:
    """Return the central square of images (n, C, H, W) whose side is ``share`` of the shorter one."""
    height, width = images.shape[-2:]
    side = max(1, round(share * min(height, width)))
    top, left = (height - side) // 2, (width - side) // 2
    return images[..., top : top + side, left : left + side]


def _optimizer(model: nn.Module, protocol: FineTuningProtocol, rate: float) -> torch.optim.Optimizer:
    if protocol.optimizer == "nadam":
        return eager(torch.optim.NAdam)(model.parameters(), lr=rate, betas=(0.9, 0.999))
    return eager(torch.optim.SGD)(model.parameters(), lr=rate, momentum=0.9, nesterov=True)


def _epoch(keys: Tensor, seed: int, epoch: int, batches: int) -> Iterator[Tensor]:
    """Yield the rows (B,) of each batch of an epoch; batch sizes differ by at most one."""
    order = torch.argsort(hash_words(_ORDER_SALT, seed, epoch, keys), stable=True)
    yield from torch.tensor_split(order, batches)


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: ImageSet, task: FineTuningTask, seed: int, epoch: int
) -> None:
    pixels, keys = batch.images.to(task.device), batch.keys.to(task.device)
    pixels = task.preprocessing.as_read(pixels)
    views = make_views(
        pixels, keys, task.views, task.preprocessing, seed=seed, epoch=epoch, num_views=1, channels_last=True
    )
    loss = _loss(model(views[0]), batch)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
