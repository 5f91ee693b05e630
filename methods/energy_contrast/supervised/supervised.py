"""Supervised learning: an encoder learns from labels, by cross-entropy or by contrast that knows the classes.

Shapes: V views, B images of the global batch, b of this rank, C channels, H x W pixels, D embedding size, P projection
size, K classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.classifier import Classifier, measure_classes, require_classes
from energy_contrast.ess_control import ControlledMethod, new_controller
from energy_contrast.losses import info_nce, pair_similarities
from energy_contrast.method import Batch, Requirements, StepOutput
from energy_contrast.networks.heads import at_least_float32, new_head
from energy_contrast.parallel import gather
from energy_contrast.supervised.settings import SupervisedConfig


class Supervised(ControlledMethod, Classifier):
    """Cross-entropy with the labels, SupCon, or contrast with negatives of other classes alone.

    ``L = mean_i -log softmax(W h_i + c)_{y_i}`` with the embedding ``h = f(x)``. With ``objective="supcon"`` the
    encoder learns from ``supervised_contrast`` of the projections g(h) instead, with ``"negatives-only"`` from
    ``negatives_only_contrast``; the classifier (W, c) then learns by the cross-entropy above from detached embeddings,
    so that its gradient does not reach the encoder.

    Args:
        config: Objective, label smoothing, and for contrast temperature and projection head.
        encoder: f, with ``embedding_size``.
        num_classes: K.

    Metrics: ``cross_entropy`` and ``accuracy`` of the classifier on the batch. With contrast also its loss (``supcon``
    or ``negatives_only``) and, of the projections, ``info_nce``, for which images of the same class count as negatives,
    and what ``diagnose`` returns; while the temperature is controlled, what ``watch_negatives`` returns of the views of
    other classes.

    Raises:
        ValueError: If there are fewer than two classes.

    Source: SupCon (Khosla et al. 2020, arXiv:2004.11362), eq. 2; NSCL (arXiv:2506.04411), the definition of L_NSCL.
    Departs from the papers: the classifier is trained beside the encoder and not afterwards. SupCon's loss is the mean
    over the 2B anchors, without the released code's factor tau / 0.07. The head's hidden layer is as wide as the
    embedding. NSCL's sums run over the batch, not over the training set.
    """

    Config = SupervisedConfig
    not_in_chunks = ""
    config: SupervisedConfig
    paper = (
        "Khosla, Teterwak, Wang, Sarna, Tian et al., Supervised Contrastive Learning, NeurIPS 2020, arXiv:2004.11362"
    )
    needs_labels = True

    def __init__(self, config: SupervisedConfig, encoder: nn.Module, num_classes: int = 0) -> None:
        require_classes("supervised", num_classes)
        super().__init__(config, encoder, num_classes)
        self.num_classes, self.num_views = num_classes, _num_views(config)
        self.controller = new_controller(config)
        self.classifier = nn.Linear(cast(int, encoder.embedding_size), num_classes)
        if config.objective != "cross-entropy":
            self.head = new_head(config, encoder)

    @classmethod
    def requirements(cls, config: SupervisedConfig, batch_size: int) -> Requirements:
        """Return what the method needs: labels, and one view for cross-entropy or two for contrast."""
        return replace(super().requirements(config, batch_size), num_views=_num_views(config))

    def classify(self, images: Tensor) -> Tensor:
        """Return the logits (B, K) of images (B, C, H, W)."""
        return at_least_float32(self.classifier(self.encoder(images)))

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; draws nothing from ``generator``."""
        embedding = self.encode(batch.views.flatten(0, 1))  # (V b, D)
        contrasted = self.config.objective != "cross-entropy"
        logits = at_least_float32(self.classifier(embedding.detach() if contrasted else embedding))  # (V b, K)
        labels = batch.labels.repeat(len(batch.views))  # (V b,)
        with torch.autocast(embedding.device.type, enabled=False):
            loss, metrics = measure_classes(logits, labels, label_smoothing=self.config.label_smoothing)
        if not contrasted:
            return StepOutput(loss, metrics)
        contrast, more = self._contrast(embedding, batch)
        return StepOutput(contrast + loss, metrics | more)

    def _contrast(self, embedding: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the contrastive loss of the global batch, and its metrics."""
        projection = at_least_float32(self.head(embedding)).view(*batch.views.shape[:2], -1)
        projection, labels = gather(projection, dim=1), gather(batch.labels)  # (2, B, P), (B,)
        vectors, classes, tau = projection.flatten(0, 1), labels.repeat(2), self.temperature  # (2B, P), (2B,)
        with torch.autocast(embedding.device.type, enabled=False):
            supcon = self.config.objective == "supcon"
            loss = (supervised_contrast if supcon else negatives_only_contrast)(vectors, classes, temperature=tau)
            with torch.no_grad():
                positive, negatives = pair_similarities(*projection)
                readable = info_nce(positive, negatives, temperature=tau)
            metrics = self.measure(readable, vectors, positive, negatives, temperature=tau)
            if self.controller is not None:
                directions = F.normalize(vectors.detach(), dim=1)
                metrics |= self.watch_negatives(directions @ directions.T, present=classes[:, None] != classes)
        return loss, {"supcon" if supcon else "negatives_only": loss.detach()} | metrics


def supervised_contrast(z: Tensor, labels: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return the supervised contrastive loss: all other vectors of an anchor's class are its positives.

    ``L = mean_i -1/|P(i)| sum_{p in P(i)} log( exp(s_ip / tau) / sum_{a != i} exp(s_ia / tau) )`` with cosines s and
    P(i) the other vectors of label y_i.

    Args:
        z: (N, D) vectors of any length: two views of each image.
        labels: (N,) int64.
        temperature: tau, divides cosine similarities.

    Returns:
        () loss in nats; log(N - 1) when all vectors agree. An anchor alone in its class adds 0 to the mean.

    Raises:
        ValueError: If the shapes do not fit.

    >>> round(supervised_contrast(torch.ones(6, 2), torch.tensor([0, 1, 1, 0, 1, 1]), temperature=0.1).exp().item(), 4)
    5.0

    Source: SupCon (arXiv:2004.11362), eq. 2 (L_out), as a mean over anchors.
    """
    _check_labels("supervised_contrast", z, labels)
    unit = F.normalize(z, dim=1)
    own = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (unit @ unit.T / temperature).masked_fill(own, -torch.inf)  # (N, N)
    log_share = similarity - torch.logsumexp(similarity, dim=1, keepdim=True)
    positives = (labels[:, None] == labels) & ~own  # (N, N)
    count = positives.sum(dim=1).clamp_min(1)  # (N,)
    return -(log_share.masked_fill(~positives, 0).sum(dim=1) / count).mean()


def negatives_only_contrast(z: Tensor, labels: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return the negatives-only supervised contrastive loss: the decoupled loss without negatives of the own class.

    ``L = mean_i (-s(i, i+) / tau + log sum_{j: y_j != y_i} exp(s(i, j) / tau))`` with cosines s. Labels decide who
    repels, not who attracts, so that it is the control for what a contrastive loss loses by negatives of its own class.

    Args:
        z: (2B, D) vectors of any length: the first views of B images, then their second views in the same order.
        labels: (2B,) int64.
        temperature: tau, divides cosine similarities.

    Returns:
        () loss in nats; may be negative. An anchor whose batch has no other class adds 0 to the mean.

    Raises:
        ValueError: If the shapes do not fit or the vectors are not two views.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(2, 1)
    >>> round(negatives_only_contrast(z, torch.tensor([0, 1, 0, 1]), temperature=1.0).item(), 4)  # log 2 - 1
    -0.3069

    Source: NSCL (arXiv:2506.04411), the definition of L_NSCL, over a batch and with a temperature.
    """
    _check_labels("negatives_only_contrast", z, labels)
    if len(z) % 2:
        raise ValueError(f"negatives_only_contrast: needs two views of each image, got {len(z)} vectors; use (2B, D)")
    unit = F.normalize(z, dim=1)
    positive = (unit * unit.roll(len(z) // 2, dims=0)).sum(dim=1) / temperature  # (2B,)
    other = labels[:, None] != labels  # (2B, 2B)
    known = other.any(dim=1)  # (2B,)
    similarity = (unit @ unit.T / temperature).masked_fill(~other & known[:, None], -torch.inf)
    loss = torch.logsumexp(similarity, dim=1) - positive  # of an anchor without negatives, over all: then left out
    return loss.masked_fill(~known, 0).mean()


def _check_labels(where: str, z: Tensor, labels: Tensor) -> None:
    if z.dim() != 2 or labels.shape != z.shape[:1]:
        shapes = f"{tuple(z.shape)} and {tuple(labels.shape)}"
        raise ValueError(f"{where}: vectors and labels do not fit, got {shapes}; use (N, D) and (N,)")


def _num_views(config: SupervisedConfig) -> int:
    return 1 if config.objective == "cross-entropy" else 2
