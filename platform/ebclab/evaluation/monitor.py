"""Evaluation during training, on held-out training images and never on the test set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views
from ebclab.errors import DataError
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.features import Encoder, frozen, require_labels
from ebclab.evaluation.monitors.catalog import MEASURES, Monitored
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
    probed = {"holdout_knn": monitored.score("knn")} if labelled else {}
    if config.objective == "holdout_linear":
        probed["holdout_linear"] = monitored.score("linear")
    scores = {name: score.value for name, score in probed.items()}
    if config.objective == "effective_rank":
        scores["effective_rank"] = float(effective_rank(held))
    elif config.objective == "alignment_uniformity":
        scores["alignment_uniformity"] = _agreement(encoder, limit(holdout, _MOST_PAIRS), preprocessing, views, device)
    seconds = {}
    own = [] if config.objective in ANSWERED else [MONITOR_OF.get(config.objective, "")]
    for name in filter(None, dict.fromkeys((*monitors, *own))):
        began = time.monotonic()
        try:
            scores |= MEASURES[name](monitored)
        except DataError as error:
            sizes = f"{len(bank):,} images that are trained on, at most evaluation.knn_bank_limit, and {len(holdout):,}"
            raise DataError(f"monitor {name}, which looks at {sizes} held out: {error}") from error
        seconds[name] = time.monotonic() - began
    if config.objective not in scores:
        scores[config.objective] = -scores[config.objective.removeprefix("minus_")]
    answers = probed[config.objective].answers if config.objective in probed else None
    return HoldoutScores(scores, answers, seconds)


def _agreement(
    encoder: Encoder, images: ImageSet, preprocessing: Preprocessing, views: ViewsConfig, device: torch.device | str
) -> float:
    """Return -(alignment + uniformity) of the embeddings of two views; the views are the same at every call."""
    pixels, keys = images.images.to(device), images.keys.to(device)
    with frozen(encoder), torch.no_grad():
        pair = make_views(pixels, keys, views, preprocessing, seed=0, epoch=0)  # (2, m, C, H, W)
        z0, z1 = encoder(pair.flatten(0, 1)).float().chunk(2)
    return -float(alignment(z0, z1) + (uniformity(z0) + uniformity(z1)) / 2)
