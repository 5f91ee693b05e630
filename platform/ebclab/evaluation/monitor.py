"""Scores during training, on held-out training images and never on the test set."""

from __future__ import annotations

import torch
from torch import Tensor

from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views
from ebclab.evaluation.features import Encoder, compute_features, frozen, require_labels
from ebclab.evaluation.knn import knn_accuracy
from ebclab.evaluation.linear import linear_accuracies
from ebclab.evaluation.objectives import NEED_LABELS
from energy_contrast.diagnostics import alignment, effective_rank, uniformity

_MOST_PAIRS = 2_048  # images of which two views are compared: uniformity looks at all pairs


def holdout_scores(
    encoder: Encoder,
    train: ImageSet,
    holdout: ImageSet,
    preprocessing: Preprocessing,
    config: EvaluationConfig,
    views: ViewsConfig,
    *,
    device: torch.device | str,
) -> dict[str, float]:
    """Return the scores of an encoder on held-out images: the objective, and the kNN accuracy where there are labels.

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
    scores = {"holdout_knn": _knn(known, bank, held, holdout, config)} if labelled else {}
    if config.objective == "holdout_linear":
        scores["holdout_linear"] = _linear(known, bank, held, holdout, config)
    elif config.objective == "effective_rank":
        scores["effective_rank"] = float(effective_rank(held))
    elif config.objective == "alignment_uniformity":
        scores["alignment_uniformity"] = _agreement(encoder, limit(holdout, _MOST_PAIRS), preprocessing, views, device)
    return scores


def _knn(known: Tensor, bank: ImageSet, held: Tensor, holdout: ImageSet, config: EvaluationConfig) -> float:
    return knn_accuracy(
        known,
        bank.labels.to(known.device),
        held,
        holdout.labels.to(held.device),
        neighbours=config.knn_neighbours,
        temperature=config.knn_temperature,
        num_classes=_num_classes(bank, holdout),
    )


def _linear(known: Tensor, bank: ImageSet, held: Tensor, holdout: ImageSet, config: EvaluationConfig) -> float:
    accuracies = linear_accuracies(
        config.linear_protocol,
        known,
        bank.labels.to(known.device),
        held,
        holdout.labels.to(held.device),
        num_classes=_num_classes(bank, holdout),
        seeds=(0,),
        l2=config.linear_l2,
    )
    return accuracies[0]


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
