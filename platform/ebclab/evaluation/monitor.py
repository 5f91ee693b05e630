"""The score that is watched during training: kNN on held-out training images, never on the test set."""

from __future__ import annotations

import torch

from ebclab.config.sections import EvaluationConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.features import Encoder, compute_features, require_labels
from ebclab.evaluation.knn import knn_accuracy
from ebclab.evaluation.progress import OnProgress, silent


def holdout_knn(
    encoder: Encoder,
    train: ImageSet,
    holdout: ImageSet,
    preprocessing: Preprocessing,
    config: EvaluationConfig,
    *,
    device: torch.device | str,
    bank_limit: int = 10_000,
    on_progress: OnProgress = silent,
) -> float:
    """Return the kNN accuracy, in [0, 1], of held-out images against (a part of) the images trained on.

    A limited bank makes it a watch, not a measurement: it lies below what the whole training set would give (4 points
    with 10,000 of Fashion-MNIST's 54,000 images and raw pixels), but the same bank serves all epochs and trials.

    Args:
        encoder: Maps preprocessed images to embeddings; lies on ``device``.
        train: The images trained on, without the held-out ones.
        holdout: The held-out part of the training set.
        preprocessing: What the encoder expects done to stored images.
        config: Neighbours, temperature, batch size.
        device: Where features and neighbours are computed.
        bank_limit: At most this many training images, the first by hash of their keys; 0 means all.
        on_progress: Called with work done, work in all and what it is.

    Raises:
        DataError: A label is missing, a set is empty, there are fewer images than neighbours, or channels do not fit.
        TrainingError: The encoder gives NaN or infinity.
    """
    bank = limit(train, bank_limit)
    for images in (bank, holdout):
        require_labels(images)
    features = [
        compute_features(
            encoder, part.images, preprocessing, batch_size=config.batch_size, device=device, on_progress=on_progress
        ).to(device)
        for part in (bank, holdout)
    ]
    return knn_accuracy(
        features[0],
        bank.labels.to(device),
        features[1],
        holdout.labels.to(device),
        neighbours=config.knn_neighbours,
        temperature=config.knn_temperature,
        num_classes=int(max(bank.labels.max(), holdout.labels.max())) + 1,
        on_progress=on_progress,
    )
