"""k-nearest-neighbour classification of features, without training.

Two rules. ``cosine``: Wu, Xiong, Yu & Lin (2018), "Unsupervised Feature Learning via Non-Parametric Instance
Discrimination", section 3.4; its 200 neighbours and temperature 0.07 are settings here, with defaults for smaller sets
(docs/methods/README.md). ``inverse distance``: the rule in the code released with EBCLR.

Ties, in both: of training images with exactly equal scores, the one with the lower row index is the neighbour; of
classes with equal votes, the lower label wins.

Shapes: n training rows (the bank), q test rows, k neighbours, K classes, D features.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.errors import DataError
from ebclab.evaluation.progress import OnProgress, silent

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
