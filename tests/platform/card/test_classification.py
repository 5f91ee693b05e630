"""Accuracies of a card on made-up images."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebclab.card.groups.classification import measure
from ebclab.card.images import MeasuredSet
from ebclab.card.subject import Subject
from energy_contrast.classifier import Classifier


class Bright(nn.Module, Classifier):
    """Says row, column or neither by where images are brightest."""

    num_classes = 3

    def classify(self, images: Tensor) -> Tensor:
        row, column = images[:, 0, 2].mean(dim=1), images[:, 0, :, 3].mean(dim=1)
        return torch.stack([row, column, torch.zeros_like(row)], dim=1)


@pytest.mark.parametrize("dataset", ["stripes", "another"])
def test_a_method_that_classifies_is_measured_on_its_own_dataset_alone(
    make: Any, subject: Subject, measured: MeasuredSet, dataset: str
) -> None:
    trained: Any = SimpleNamespace(config=SimpleNamespace(data=SimpleNamespace(name=dataset), method=None))
    measuring = make(subject=replace(subject, trained=trained))
    measuring.__dict__["method"] = Bright()
    numbers = {number.name: number for number in measure(measuring).numbers}
    assert ("own-classifier" in numbers) == (dataset == "stripes")
    if dataset == "stripes":
        pixels = (measured.test.images.float() / 255 - 0.5) / 0.25
        right = sum(
            int(Bright().classify(image[None]).argmax()) == int(label)
            for image, label in zip(pixels, measured.test.labels, strict=True)
        )
        assert numbers["own-classifier"].value == pytest.approx(right / 90)
        assert right >= 45  # better than chance


def test_there_is_no_top_5_of_three_classes(make: Any) -> None:
    assert [number.name for number in measure(make()).numbers] == ["knn", "linear", "linear-top1"]
