"""Evaluation of an encoder by probes on labelled training and test images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ebclab.config.sections import EvaluationConfig
from ebclab.data.class_labels import num_unlabelled, one_class_problem
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError
from ebclab.evaluation.answers import Score, score_of
from ebclab.evaluation.features import Encoder, compute_features, num_classes, require_labels
from ebclab.evaluation.knn import ebclr_knn_predictions, knn_predictions
from ebclab.evaluation.linear import linear_within
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import PROTOCOLS, SolvedProtocol, look_up

_TOPS = (1, 5)
_EBCLR_NEIGHBOURS = 20


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
    probes = {name: look_up("only", "probe", name, PROBES) for name in only}
    if "linear" in probes or "top5" in probes:
        look_up("evaluation.linear_protocol", "protocol", config.linear_protocol, PROTOCOLS)
    for part in (train, test):
        require_labels(part)
    if num_unlabelled(train.labels):
        raise DataError(one_class_problem(train.name))
    (x, y), (test_x, test_y) = (
        (
            compute_features(
                encoder,
                part.images,
                preprocessing,
                batch_size=config.batch_size,
                device=device,
                on_progress=on_progress,
                what=f"features of {what} images",
            ).to(device),
            part.labels.to(device),
        )
        for part, what in ((train, "training"), (test, "test"))
    )
    split = FeatureSplit(x, y, test_x, test_y, test.keys, num_classes(train, test))
    fitting = min(config.knn_neighbours, len(train))  # another dataset may be smaller than the run's own
    config = replace(config, knn_neighbours=fitting)
    return {name: probe(split, config, seed, on_progress) for name, probe in probes.items()}


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
    return score_of("knn", (predictions == split.test_y)[None], split.test_keys, detail=detail)


def _ebclr_knn(split: FeatureSplit, config: EvaluationConfig, seed: int, on_progress: OnProgress) -> Score:
    neighbours = min(_EBCLR_NEIGHBOURS, len(split.train_y))
    predictions = ebclr_knn_predictions(
        split.train_x,
        split.train_y,
        split.test_x,
        num_classes=split.num_classes,
        neighbours=neighbours,
        on_progress=on_progress,
    )
    detail = f"kNN, {neighbours} Euclidean neighbours, votes 1 / distance"
    return score_of("ebclr-knn", (predictions == split.test_y)[None], split.test_keys, detail=detail)


def _linear(split: FeatureSplit, config: EvaluationConfig, seed: int, on_progress: OnProgress, top: int = 1) -> Score:
    protocol = PROTOCOLS[config.linear_protocol]
    seeds = tuple(range(seed, seed + config.linear_seeds))
    key = protocol.name, seeds, config.linear_l2
    if key not in split.linear:
        split.linear[key] = linear_within(
            protocol,
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
    right = split.linear[key][_TOPS.index(top)]
    exact = isinstance(protocol, SolvedProtocol)
    detail = f"linear, {protocol.name}: {protocol.doc}" + (f", l2 {config.linear_l2:g}" if exact else "")
    name, detail = ("linear", detail) if top == 1 else (f"top{top}", f"top {top}, {detail}")
    return score_of(name, right, split.test_keys, detail=detail, seeds=() if exact else seeds)


Probe = Callable[[FeatureSplit, EvaluationConfig, int, OnProgress], Score]

PROBES: dict[str, Probe] = {
    "knn": _knn,
    "linear": _linear,
    "top5": partial(_linear, top=5),
    "ebclr-knn": _ebclr_knn,
}
"""All probes by name, as passed to ``--only``."""
