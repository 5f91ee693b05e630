"""Evaluation during training, on held-out training images and never on the test set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views
from ebclab.errors import DataError
from ebclab.evaluation.answers import Answers, share_right
from ebclab.evaluation.features import Encoder, frozen, require_labels
from ebclab.evaluation.knn import knn_predictions
from ebclab.evaluation.monitors.catalog import MEASURES
from ebclab.evaluation.monitors.monitored import Monitored
from ebclab.evaluation.monitors.numbers import MONITOR_OF
from ebclab.evaluation.objectives import ANSWERED, NEED_LABELS
from energy_contrast.diagnostics import alignment, effective_rank, uniformity

_MOST_PAIRS = 2_048  # maximum number of images for two views: uniformity is computed over all pairs


@dataclass(frozen=True)
class HoldoutScores:
    """Scores of an encoder on held-out images."""

    by_name: dict[str, float]  # the objective, the kNN accuracy if there are labels, and the metrics of monitors
    answers: Answers | None  # of the objective's probe; None if the objective is not computed from answers
    seconds: dict[str, float] = field(default_factory=dict)  # additional time of each monitor


def holdout_scores(
    encoder: Encoder,
    train: ImageSet,
    holdout: ImageSet,
    preprocessing: Preprocessing,
    config: EvaluationConfig,
    views: ViewsConfig,
    *,
    device: torch.device | str,
    monitors: Sequence[str] = (),
    project: Encoder | None = None,
) -> HoldoutScores:
    """Return the scores of an encoder on held-out images.

    ``holdout_knn`` and ``holdout_linear`` are accuracies in [0, 1] on held-out images of probes fitted on (a subset of)
    the training images. With a limited bank they are lower than with all training images, but comparable: all
    epochs and trials use the same bank. ``effective_rank`` is that of the held-out embeddings, as in
    RankMe (arXiv:2210.02885). ``alignment_uniformity`` is the negative sum of both (arXiv:2005.10242) for two
    fixed views of at most 2,048 held-out images, so that higher is better. The metrics of monitors, and the objectives
    derived from them, are defined in ``monitors/numbers.py``.
    """
    bank = limit(train, config.knn_bank_limit)
    monitored = Monitored(encoder, bank, holdout, preprocessing, config, device, views, project)
    labelled = monitored.is_labelled
    if config.objective in NEED_LABELS or labelled:
        for images in (bank, holdout):
            require_labels(images)

    held = monitored.held  # (m, D)
    right = {"holdout_knn": _knn(monitored)} if labelled else {}
    if config.objective == "holdout_linear":
        right["holdout_linear"] = monitored.linear_right
    scores = {name: share_right(rows)[0] for name, rows in right.items()}
    if config.objective == "effective_rank":
        scores["effective_rank"] = float(effective_rank(held))
    elif config.objective == "alignment_uniformity":
        scores["alignment_uniformity"] = _agreement(encoder, limit(holdout, _MOST_PAIRS), preprocessing, views, device)
    seconds = {}
    for name in dict.fromkeys((*monitors, *_monitor_of(config.objective))):
        began = time.monotonic()
        try:
            scores |= MEASURES[name](monitored)
        except DataError as error:
            seen = f"{len(bank):,} images that are trained on, at most evaluation.knn_bank_limit, and {len(holdout):,}"
            raise DataError(f"monitor {name}, which looks at {seen} held out: {error}") from error
        seconds[name] = time.monotonic() - began
    if config.objective not in scores:
        scores[config.objective] = -scores[config.objective.removeprefix("minus_")]
    rows = right.get(config.objective)
    return HoldoutScores(scores, None if rows is None else Answers.of(rows, holdout.keys), seconds)


def _monitor_of(objective: str) -> tuple[str, ...]:
    """Return the monitor that measures an objective; none for ``holdout_linear``, which is computed with answers."""
    return (MONITOR_OF[objective],) if objective in MONITOR_OF and objective not in ANSWERED else ()


def _knn(monitored: Monitored) -> Tensor:
    """Return which held-out images are classified correctly, (1, m) bool."""
    config, known, held = monitored.config, monitored.known, monitored.held
    predictions = knn_predictions(
        known,
        monitored.bank.labels.to(known.device),
        held,
        neighbours=config.knn_neighbours,
        temperature=config.knn_temperature,
        num_classes=monitored.num_classes,
    )
    return (predictions == monitored.holdout.labels.to(held.device))[None]


def _agreement(
    encoder: Encoder, images: ImageSet, preprocessing: Preprocessing, views: ViewsConfig, device: torch.device | str
) -> float:
    """Return -(alignment + uniformity) of the embeddings of two views; the views are the same at every call."""
    pixels, keys = images.images.to(device), images.keys.to(device)
    with frozen(encoder), torch.no_grad():
        pair = make_views(pixels, keys, views, preprocessing, seed=0, epoch=0)  # (2, m, C, H, W)
        z0, z1 = encoder(pair.flatten(0, 1)).float().chunk(2)
    return -float(alignment(z0, z1) + (uniformity(z0) + uniformity(z1)) / 2)
