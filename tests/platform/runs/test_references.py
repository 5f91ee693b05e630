"""Raw pixels and the untrained encoder: measured as runs are, once, and not for another protocol."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from ebclab.config import ExperimentConfig, compose, to_mapping
from ebclab.data.holdout import limit
from ebclab.data.sources.load import load_split
from ebclab.errors import RunError
from ebclab.runs import measured_references
from ebclab.runs.measured_references import measure_references
from ebclab.runs.references import PIXELS, UNTRAINED, Protocol, References

SEEDS = (1, 2)


@pytest.fixture
def config() -> ExperimentConfig:
    """A small run on 150 images."""
    overrides = ["data.train_limit=150", "encoder.width=8", "resources.threads=1", "resources.device=cpu"]
    return compose("simclr", "digits-demo", None, overrides)


@pytest.mark.parametrize("image_size", [0, 6])
def test_raw_pixels_have_the_neighbours_of_the_plan(config: ExperimentConfig, tmp_path: Path, image_size: int) -> None:
    """By a loop: votes exp(cosine / 0.1) of the 20 nearest of the images that the limit leaves, as they are stored."""
    config = replace(config, views=replace(config.views, image_size=image_size))
    found = measure_references(tmp_path / "kept.json", Protocol(config, 150, "knn"), SEEDS)
    train, test = limit(load_split("digits", None, "train"), 150), load_split("digits", None, "test")
    bank, asked = (normalize(part.images.flatten(1).double(), dim=1) for part in (train, test))
    right = 0
    for image, label in zip(asked, test.labels.tolist(), strict=True):
        nearest = torch.topk(bank @ image, 20)
        votes = torch.zeros(10, dtype=torch.float64)
        votes.index_add_(0, train.labels[nearest.indices], (nearest.values / 0.1).exp())
        right += int(votes.argmax()) == label
    measured = found.scores(PIXELS, Protocol(config, 150, "knn"), SEEDS)
    assert measured.by_seed == {seed: pytest.approx(right / len(test)) for seed in SEEDS}  # the same beside each run
    assert set(measured.answers) == set(SEEDS)


def test_references_are_measured_once_and_again_for_more_seeds_alone(config, tmp_path, monkeypatch):
    path, protocol = tmp_path / "kept.json", Protocol(config, 150, "knn")
    built = list[int]()
    untrained = measured_references.untrained_encoder

    def remembered(config: ExperimentConfig, *size: int) -> Any:
        built.append(config.seed)
        return untrained(config, *size)

    monkeypatch.setattr(measured_references, "untrained_encoder", remembered)
    first = measure_references(path, protocol, SEEDS)
    assert built == [1, 2]
    again = measure_references(path, protocol, (1, 2, 3))
    assert built == [1, 2, 3]
    assert again.references[: len(first.references)] == first.references
    assert References.read(path) == again
    measured = again.scores(UNTRAINED, protocol, (2, 3, 4))
    assert list(measured.by_seed) == [2, 3]


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({}, {PIXELS, UNTRAINED}),
        ({"seed": 7, "training.epochs": 3, "data.holdout_rate": 0.3}, {PIXELS, UNTRAINED}),
        ({"method.temperature": 0.3, "evaluation.linear_l2": 0.1}, {PIXELS, UNTRAINED}),  # no part of kNN
        ({"encoder.width": 16}, {PIXELS}),
        ({"views.normalisation": "half"}, {PIXELS}),
        ({"evaluation.knn_neighbours": 5}, set()),
    ],
)
def test_what_decides_a_reference_is_its_key(config, change, is_same):
    mapping = to_mapping(config)
    for key, value in change.items():
        section, _, name = key.rpartition(".")
        (mapping[section] if section else mapping)[name] = value
    other = Protocol(compose("simclr", config=mapping), 150, "knn")
    mine = Protocol(config, 150, "knn")
    assert {name for name in (PIXELS, UNTRAINED) if mine.key(name) == other.key(name)} == is_same
    assert mine.key(PIXELS) != mine._replace(train_limit=0).key(PIXELS)


def test_a_damaged_file_of_references_is_said(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text('{"format": 1, "references": [{"name": "raw pixels"}]}')
    with pytest.raises(RunError, match=r"kept\.json: not the references of runs, got .*; delete the file"):
        References.read(path)
