"""Scores during training, on held-out training images and never on the test set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views
from ebclab.evaluation.answers import Answers, share_right
from ebclab.evaluation.features import Encoder, compute_features, frozen, require_labels
from ebclab.evaluation.knn import knn_predictions
from ebclab.evaluation.linear import linear_answers
from ebclab.evaluation.objectives import NEED_LABELS
from energy_contrast.diagnostics import alignment, effective_rank, uniformity

_MOST_PAIRS = 2_048  # images of which two views are compared: uniformity looks at all pairs


@dataclass(frozen=True)
class HoldoutScores:
    """What an encoder scored on held-out images.

    Attributes:
        by_name: The objective, and the kNN accuracy where there are labels.
        answers: Which images the objective's probe was right about; None where the objective is no accuracy.
    """

    by_name: dict[str, float]
    answers: Answers | None


def holdout_scores(
    encoder: Encoder,
    train: ImageSet,
    holdout: ImageSet,
    preprocessing: Preprocessing,
    config: EvaluationConfig,
    views: ViewsConfig,
    *,
    device: torch.device | str,
) -> HoldoutScores:
    """Return the scores of an encoder on held-out images.

    ``holdout_knn`` and ``holdout_linear`` are accuracies in [0, 1] of held-out images against (a part of) the images
    trained on. With a limited bank they are lower than with the whole training set, but they can be compared: all
    epochs and trials have the same bank. ``effective_rank`` is that of the held-out embeddings, as in
    RankMe (arXiv:2210.02885). ``alignment_uniformity`` is minus the sum of both (arXiv:2005.10242) for two
    fixed views of at most 2,048 held-out images, so that more is better.

    Args:
        encoder: Maps preprocessed images to embeddings; lies on ``device``.
        train: The images trained on, without the held-out ones.
        holdout: The held-out part of the training set.
        preprocessing: What the encoder expects done to stored images.
        config: Objective, neighbours, temperature, bank, batch size.
        views: How views are drawn, for ``alignment_uniformity``.
        device: Where features and neighbours are computed.

    Raises:
        DataError: A label is missing, a set is empty, there are fewer images than neighbours, or channels do not fit.
        DivergedError: The encoder gives NaN or infinity.
    """
    bank = limit(train, config.knn_bank_limit)
    labelled = not bool((bank.labels < 0).any() or (holdout.labels < 0).any())
    if config.objective in NEED_LABELS or labelled:
        for images in (bank, holdout):
            require_labels(images)

    def embed(part: ImageSet) -> Tensor:
        return compute_features(
            encoder, part.images, preprocessing, batch_size=config.batch_size, device=device
        ).to(device)  # fmt: skip

    held = embed(holdout)  # (m, D)
    known = embed(bank) if labelled else held  # (n, D)
    right = {"holdout_knn": _knn(known, bank, held, holdout, config)} if labelled else {}
    if config.objective == "holdout_linear":
        right["holdout_linear"] = _linear(known, bank, held, holdout, config)
    scores = {name: share_right(rows)[0] for name, rows in right.items()}
    if config.objective == "effective_rank":
        scores["effective_rank"] = float(effective_rank(held))
    elif config.objective == "alignment_uniformity":
        scores["alignment_uniformity"] = _agreement(encoder, limit(holdout, _MOST_PAIRS), preprocessing, views, device)
    rows = right.get(config.objective)
    return HoldoutScores(scores, None if rows is None else Answers.of(rows, holdout.keys))


def _knn(known: Tensor, bank: ImageSet, held: Tensor, holdout: ImageSet, config: EvaluationConfig) -> Tensor:
    """Return which held-out images are in the right class, (1, m) bool."""
    predictions = knn_predictions(
        known,
        bank.labels.to(known.device),
        held,
        neighbours=config.knn_neighbours,
        temperature=config.knn_temperature,
        num_classes=_num_classes(bank, holdout),
    )
    return (predictions == holdout.labels.to(held.device))[None]


def _linear(known: Tensor, bank: ImageSet, held: Tensor, holdout: ImageSet, config: EvaluationConfig) -> Tensor:
    """Return which held-out images are in the right class, (1, m) bool."""
    return linear_answers(
        config.linear_protocol,
        known,
        bank.labels.to(known.device),
        held,
        holdout.labels.to(held.device),
        num_classes=_num_classes(bank, holdout),
        seeds=(0,),
        l2=config.linear_l2,
    )


def _num_classes(bank: ImageSet, holdout: ImageSet) -> int:
    return int(max(bank.labels.max(), holdout.labels.max())) + 1


def _agreement(
    encoder: Encoder, images: ImageSet, preprocessing: Preprocessing, views: ViewsConfig, device: torch.device | str
) -> float:
    """Return -(alignment + uniformity) of the embeddings of two views, the same views at every call."""
    pixels, keys = images.images.to(device), images.keys.to(device)
    with frozen(encoder), torch.no_grad():
        pair = make_views(pixels, keys, views, preprocessing, seed=0, epoch=0)  # (2, m, C, H, W)
        z0, z1 = encoder(pair.flatten(0, 1)).float().chunk(2)
    return -float(alignment(z0, z1) + (uniformity(z0) + uniformity(z1)) / 2)
