"""Label-free metrics of the features: alignment of two views, uniformity, effective rank, InfoNCE."""

from __future__ import annotations

import torch

from ebclab.card.card import Findings, Number, mean_over_images
from ebclab.card.measuring import Group, Measuring
from ebclab.data.holdout import limit
from ebclab.errors import DataError
from ebclab.evaluation.measures.geometry import (
    MOST_IMAGES,
    MOST_IN_POOL,
    TEMPERATURE,
    TEMPERATURES,
    VIEWS_IN_WORDS,
    geometry,
    view_information,
)


def measure(measuring: Measuring) -> Findings:
    """Return label-free metrics of the embeddings of test images, and of two views of them."""
    test = measuring.measured.test
    pool = limit(test, MOST_IN_POOL)
    is_few = torch.isin(pool.keys, limit(test, MOST_IMAGES).keys)
    few = pool.rows(is_few)
    if len(few) < 2:
        raise DataError(f"{test.name}: two test images are needed to compare images, got {len(few)}")
    features = measuring.features(test)
    first, second = measuring.two_views(measuring.encoder, pool)
    measures = geometry(first[is_few], second[is_few], features)
    information, n = view_information(first, second, measuring.device), len(few)
    rank = f"exponential of the entropy of singular values of {len(test):,} x {features.shape[1]} test features"
    negatives = f"InfoNCE, {measures.num_negatives:,} negatives"
    against = f"against {measures.num_negatives:,} others at temperature {TEMPERATURE:g}; {VIEWS_IN_WORDS}"
    potential = f"log of the mean Gaussian potential of all pairs, t = 2; mean of {VIEWS_IN_WORDS}"
    contrast = f"embeddings {against}; chance is its bound, {measures.bound:.3f} nats"
    saturation = f"1 - InfoNCE / {measures.bound:.3f}: near 1, InfoNCE cannot say more; embeddings {against}"
    ess = f"1 / (K sum of squared softmax weights), mean over anchors; embeddings {against}"
    among = (
        f"InfoNCE of embeddings, each image among all {len(pool):,}, at temperature {information.temperature:g}, of "
        f"{TEMPERATURES[0]:g} to {TEMPERATURES[-1]:g} the one with the largest estimate; a lower bound in expectation, "
        f"at most log {len(pool):,} = {information.bound:.3f} nats; {VIEWS_IN_WORDS}"
    )
    alignment = mean_over_images(
        "alignment",
        "alignment",
        measures.distances,
        few.keys,
        protocol=f"squared distance of unit embeddings of {VIEWS_IN_WORDS}",
        better="lower",
        unit="plain",
    )
    return Findings(
        (
            alignment,
            Number("uniformity", "uniformity", measures.uniformity, potential, n, "lower", "plain"),
            Number("effective-rank", "effective rank", measures.effective_rank, rank, len(test), "higher", "plain"),
            Number("infonce", negatives, measures.info_nce, contrast, n, "lower", "nats"),
            Number("log-k-saturation", "log-K saturation", measures.log_k_saturation, saturation, n, "neither"),
            Number("ess", "effective sample size of the negatives", measures.effective_sample_size, ess, n, "neither"),
            Number(
                "information", "mutual information between views", information.nats, among, len(pool), "neither", "nats"
            ),
        )
    )


GROUP = Group(
    name="geometry",
    title="Geometry of the features",
    headline="effective-rank",
    doc="alignment, uniformity, effective rank, effective sample size, InfoNCE and mutual information; no labels",
    source="Wang & Isola (2020), section 4; Garrido et al. (2023), RankMe; Oord et al. (2018); FlatNCE, sections 3, 4",
    looks_at=("test",),
    measure=measure,
)
