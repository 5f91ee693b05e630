"""Evaluation of an encoder by probes on labelled training and test images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ebclab.config.sections import EvaluationConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.answers import Answers, share_right
from ebclab.evaluation.features import Encoder, compute_features, require_labels
from ebclab.evaluation.intervals import Score, make_score
from ebclab.evaluation.knn import ebclr_knn_predictions, knn_predictions
from ebclab.evaluation.linear import linear_within
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import PROTOCOLS, SolvedProtocol, look_up

_TOPS = (1, 5)


@dataclass(frozen=True)
class FeatureSplit:
    """Features and labels of both sets, all on one device."""

    train_x: Tensor  # (n, D) float32
    train_y: Tensor  # (n,) int64 in [0, num_classes)
    test_x: Tensor  # (m, D) float32
    test_y: Tensor  # (m,) int64 in [0, num_classes)
    test_keys: Tensor  # (m,) keys of the test images
    num_classes: int
    # answers of linear probes, so that each is trained once for its top 1 and top 5
    linear: dict[tuple[str, tuple[int, ...], float], Tensor] = field(default_factory=dict)


def evaluate_encoder(
    encoder: Encoder,
    train: ImageSet,
    test: ImageSet,
    preprocessing: Preprocessing,
    config: EvaluationConfig,
    *,
    device: torch.device | str,
    only: Sequence[str] = ("knn", "linear"),
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> dict[str, Score]:
    """Return the score of each probe in ``only``, on features computed once with the encoder frozen.

    The encoder must be on ``device``. Protocols with randomness use ``config.linear_seeds`` consecutive seeds from
    ``seed`` on. The training set is complete, with the held-out part, since model selection is finished.
    """
    probes = _chosen_probes(only, config)
    num_classes = _count_classes(train, test)
    features = [
        compute_features(
            encoder,
            part.images,
            preprocessing,
            batch_size=config.batch_size,
            device=device,
            on_progress=on_progress,
            what=f"features of {what} images",
        ).to(device)
        for part, what in ((train, "training"), (test, "test"))
    ]
    split = _split(features, train, test, num_classes)
    return {name: probe(split, config, seed, on_progress) for name, probe in probes.items()}


def raw_pixel_scores(
    train: ImageSet,
    test: ImageSet,
    config: EvaluationConfig,
    *,
    device: torch.device | str = "cpu",
    only: Sequence[str] = ("knn", "linear"),
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> dict[str, Score]:
    """Return the scores of the same probes on flattened pixels in [0, 1]: the baseline for an encoder.

    Arguments and exceptions are those of `evaluate_encoder`.
    """
    probes = _chosen_probes(only, config)
    num_classes = _count_classes(train, test)
    pixels = [part.images.to(device).flatten(1).float() / 255 for part in (train, test)]
    split = _split(pixels, train, test, num_classes)
    return {name: probe(split, config, seed, on_progress) for name, probe in probes.items()}


def _split(features: list[Tensor], train: ImageSet, test: ImageSet, num_classes: int) -> FeatureSplit:
    """Return the features of training and test images with their labels, moved to the features' device."""
    labels = [part.labels.to(features[0].device) for part in (train, test)]
    return FeatureSplit(features[0], labels[0], features[1], labels[1], test.keys, num_classes)


def _knn(split: FeatureSplit, config: EvaluationConfig, seed: int, on_progress: OnProgress) -> Score:
    predictions = knn_predictions(
        split.train_x,
        split.train_y,
        split.test_x,
        neighbours=config.knn_neighbours,
        temperature=config.knn_temperature,
        num_classes=split.num_classes,
        on_progress=on_progress,
    )
    detail = f"kNN, {config.knn_neighbours} neighbours, votes exp(cosine / {config.knn_temperature:g})"
    return _score_predictions("knn", predictions, split, detail)


def _ebclr_knn(split: FeatureSplit, config: EvaluationConfig, seed: int, on_progress: OnProgress) -> Score:
    predictions = ebclr_knn_predictions(
        split.train_x, split.train_y, split.test_x, num_classes=split.num_classes, on_progress=on_progress
    )
    return _score_predictions("ebclr-knn", predictions, split, "kNN, 20 Euclidean neighbours, votes 1 / distance")


def _score_predictions(name: str, predictions: Tensor, split: FeatureSplit, detail: str) -> Score:
    return _score(name, (predictions == split.test_y)[None], split, detail)


def _score(name: str, right: Tensor, split: FeatureSplit, detail: str, seeds: tuple[int, ...] = ()) -> Score:
    """Return the score of a probe, given the per-image correctness ``right``, (S, m) bool."""
    score = make_score(name, share_right(right), num_images=len(split.test_y), detail=detail, seeds=seeds)
    return replace(score, answers=Answers.of(right, split.test_keys))


def _linear(split: FeatureSplit, config: EvaluationConfig, seed: int, on_progress: OnProgress, top: int = 1) -> Score:
    protocol = PROTOCOLS[config.linear_protocol]
    seeds = tuple(range(seed, seed + config.linear_seeds))
    asked = protocol.name, seeds, config.linear_l2
    if asked not in split.linear:
        split.linear[asked] = linear_within(
            protocol.name,
            split.train_x,
            split.train_y,
            split.test_x,
            split.test_y,
            num_classes=split.num_classes,
            seeds=seeds,
            l2=config.linear_l2,
            tops=_TOPS,
            on_progress=on_progress,
        )
    right = split.linear[asked][_TOPS.index(top)]
    exact = isinstance(protocol, SolvedProtocol)
    detail = f"linear, {protocol.name}: {protocol.doc}" + (f", l2 {config.linear_l2:g}" if exact else "")
    name, detail = ("linear", detail) if top == 1 else (f"top{top}", f"top {top}, {detail}")
    return _score(name, right, split, detail, seeds=() if exact else seeds)


Probe = Callable[[FeatureSplit, EvaluationConfig, int, OnProgress], Score]

PROBES: dict[str, Probe] = {
    "knn": _knn,
    "linear": _linear,
    "top5": partial(_linear, top=5),
    "ebclr-knn": _ebclr_knn,
}
"""All probes by name, as passed to ``--only``."""


def _chosen_probes(only: Sequence[str], config: EvaluationConfig) -> dict[str, Probe]:
    """Return the probes named in ``only``; all names are validated before any computation."""
    probes = {name: look_up("only", "probe", name, PROBES) for name in only}
    if "linear" in probes or "top5" in probes:
        look_up("evaluation.linear_protocol", "protocol", config.linear_protocol, PROTOCOLS)
    return probes


def _count_classes(*sets: ImageSet) -> int:
    """Return the number of classes of the sets together; every image must have a label."""
    for images in sets:
        require_labels(images)
    return max(max(int(images.labels.max()) + 1, len(images.class_names)) for images in sets)
