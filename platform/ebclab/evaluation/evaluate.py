"""Evaluation of an encoder by probes on labelled training and test images.

k-nearest-neighbour classification needs no training. Two rules. ``cosine``: Wu, Xiong, Yu & Lin (2018), "Unsupervised
Feature Learning via Non-Parametric Instance Discrimination", section 3.4; its 200 neighbours and temperature 0.07 are
settings here, with defaults for smaller sets (docs/methods/README.md). ``inverse distance``: the rule in the code
released with EBCLR. Ties, in both: of training images with exactly equal scores, the lower row index is the
neighbour; of classes with equal votes, the lower label wins.

Shapes: n training rows (the bank), q test rows, k neighbours, K classes, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.config.sections import EvaluationConfig
from ebclab.data.class_labels import num_unlabelled, one_class_problem
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError
from ebclab.evaluation.answers import Score, score_of
from ebclab.evaluation.features import Encoder, compute_features, num_classes, require_labels
from ebclab.evaluation.linear import FeatureSplit, linear_within
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import PROTOCOLS, SolvedProtocol, look_up

_SCORES_AT_ONCE = 2**24  # a (rows, n) block of float32 scores takes 64 MiB, one of votes (rows, K) twice as much
_COORDINATES_AT_ONCE = 2**23  # a (rows, k, D) block of float64 differences takes 64 MiB


def knn_predictions(
    bank: Tensor,
    bank_labels: Tensor,
    queries: Tensor,
    *,
    neighbours: int,
    temperature: float,
    num_classes: int,
    on_progress: OnProgress = silent,
) -> Tensor:
    """Return the predicted class (q,) when each neighbour votes for its own with exp(cosine / temperature).

    Features (n, D) of the bank determine the device; its labels (n,) are in [0, num_classes).
    """
    if neighbours > len(bank):
        raise DataError(
            f"evaluation.knn_neighbours: at most the {len(bank):,} available training images, got {neighbours:,}"
        )
    bank, queries = functional.normalize(bank, dim=1), functional.normalize(queries, dim=1)
    predictions = []
    for rows, similarity, _ in _nearest(bank, queries, None, neighbours, num_classes, on_progress):
        gap = similarity - similarity.amax(dim=1, keepdim=True)  # a common factor of a query's votes; avoids overflow
        predictions.append(_winners(bank_labels[rows], (gap.double() / temperature).exp(), num_classes))
    return torch.cat(predictions)


def ebclr_knn_predictions(
    bank: Tensor,
    bank_labels: Tensor,
    queries: Tensor,
    *,
    num_classes: int,
    neighbours: int = 20,
    on_progress: OnProgress = silent,
) -> Tensor:
    """Return the predicted class (q,) when each Euclidean neighbour of unnormalised features votes with 1 / distance.

    If training rows are at distance zero, only they vote. Neighbours are found in the features' own precision; the
    distances used for votes are float64.
    """
    if neighbours > len(bank):  # not configurable
        raise DataError(
            f"ebclr-knn: needs {neighbours:,} training images, got {len(bank):,}; use more, or the probe knn"
        )
    centre = bank.mean(dim=0)  # same distances, smaller rounding errors
    bank, queries = bank - centre, queries - centre
    half_squares = bank.square().sum(dim=1) / 2  # |q - b|^2 = |q|^2 - 2 (q.b - |b|^2 / 2); rank by the bracket
    predictions = []
    for rows, _, block in _nearest(bank, queries, half_squares, neighbours, num_classes, on_progress):
        few = max(1, _COORDINATES_AT_ONCE // (neighbours * bank.shape[1]))
        parts = zip(torch.split(block, few), torch.split(rows, few), strict=True)
        distance = torch.cat([(part[:, None].double() - bank[near].double()).norm(dim=2) for part, near in parts])
        exact = distance == 0
        votes = torch.where(exact.any(dim=1, keepdim=True), exact.double(), 1 / distance)
        predictions.append(_winners(bank_labels[rows], votes, num_classes))
    return torch.cat(predictions)


def _nearest(
    bank: Tensor, queries: Tensor, offset: Tensor | None, neighbours: int, num_classes: int, on_progress: OnProgress
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (rows (r, k), scores (r, k), queries (r, D)) by blocks of queries, nearest by the score q.b - offset_b."""
    done = 0
    for block in torch.split(queries, max(1, _SCORES_AT_ONCE // max(len(bank), num_classes))):
        scores = block @ bank.T if offset is None else torch.addmm(-offset, block, bank.T)  # (r, n)
        rows = _top_rows(scores, neighbours)
        yield rows, scores.gather(1, rows), block
        done += len(block)
        on_progress(done, len(queries), "knn")


def _top_rows(scores: Tensor, k: int) -> Tensor:
    """Return the columns (r, k) of the k largest scores (r, n); of equal scores, the lower columns.

    `torch.topk` does not specify the order of ties, so queries whose k-th and (k+1)-th scores are equal are recomputed.
    """
    best, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    if best.shape[1] == k:
        return columns
    tied = best[:, k - 1] == best[:, k]
    columns = columns[:, :k]
    if tied.any():
        threshold = best[tied, k - 1 : k]
        above, level = scores[tied] > threshold, scores[tied] == threshold
        room = k - above.sum(dim=1, keepdim=True)
        chosen = above | (level & (level.cumsum(dim=1) <= room))  # exactly k in each row
        columns[tied] = chosen.nonzero()[:, 1].view(-1, k)
    return columns


def _winners(labels: Tensor, votes: Tensor, num_classes: int) -> Tensor:
    """Return the label (r,) with the largest sum of votes; labels and float64 votes are (r, k)."""
    totals = votes.new_zeros(len(votes), num_classes).scatter_add_(1, labels, votes)
    return totals.argmax(dim=1)  # the first of equal maxima


_TOPS = (1, 5)
_EBCLR_NEIGHBOURS = 20


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
            protocol, split, seeds=seeds, l2=config.linear_l2, tops=_TOPS, on_progress=on_progress
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
