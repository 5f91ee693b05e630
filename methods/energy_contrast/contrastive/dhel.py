"""DHEL and KCL: the two views of an image attract, the images within a view repel; nothing else is compared."""

from __future__ import annotations

import torch
from torch import Tensor

from energy_contrast.contrastive.settings import DhelConfig
from energy_contrast.contrastive.simclr import ControlledPairMethod
from energy_contrast.losses import hyperspherical_energy, kernel_contrastive
from energy_contrast.method import StepOutput


class Dhel(ControlledPairMethod):
    """DHEL, and KCL with ``objective="kernel"``.

    ``L = 1/B sum_i (-s(u_i, v_i) / tau + log sum_{j != i} exp(s(u_i, u_j) / tau)
    + log sum_{j != i} exp(s(v_i, v_j) / tau))`` with u and v the projections of the two views and s their cosine; the
    kernel form is ``-2 E k(u_i, v_i) + gamma (E k(u_i, u_j) + E k(v_i, v_j))``, ``k(u, v) = exp(-t |u - v|^2)``.

    Args:
        config: Settings of SimCLR, the form and its kernel.
        encoder: Maps images to embeddings, with ``embedding_size``.

    Metrics: those of SimCLR, whose ``info_nce`` also counts the other views of other images, and ``energy``, the loss.
    ``ess_target`` refers to the negatives of the loss: the other images of an anchor's own view.

    Source: DHEL and KCL (arXiv:2405.18045), definitions of L_DHEL and L_KCL.
    Departs from the paper: the loss is the mean over the B images. Projection head and temperature are SimCLR's, so
    that the two differ in the loss alone.
    """

    Config = DhelConfig
    config: DhelConfig
    paper = (
        "Koromilas, Bouritsas, Giannakopoulos, Nicolaou & Panagakis, Bridging Mini-Batch and Asymptotic Analysis in "
        "Contrastive Learning: From InfoNCE to Kernel-Based Losses, ICML 2024, arXiv:2405.18045"
    )

    @classmethod
    def num_negatives(cls, config: DhelConfig, batch_size: int) -> int:
        """Return the number of other images in an anchor's own view."""
        return batch_size - 1

    def contrast(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> StepOutput:
        """Compute loss and metrics from similarities with positives (2B,) and negatives (2B, 2B - 2)."""
        count = len(positive) // 2
        others = negatives.view(2, count, 2, count - 1)  # view of the anchor, anchor, view of the other, other
        within = torch.stack([others[0, :, 0], others[1, :, 1]])  # (2, B, B - 1)
        if self.config.objective == "kernel":
            sharpness, repulsion = self.config.kernel_sharpness, self.config.kernel_repulsion
            loss = kernel_contrastive(positive[:count], within, sharpness=sharpness, repulsion=repulsion)
        else:
            loss = hyperspherical_energy(positive[:count], within, temperature=self.temperature)
        metrics = self.measure_simclr(projection, positive, negatives)
        metrics |= self.watch_negatives(within.flatten(0, 1))
        return StepOutput(loss, metrics | {"energy": loss.detach()})
