"""Barlow Twins: each dimension agrees between the two views and with no other dimension; no negatives.

Shapes: B images, C channels, H x W pixels, D embedding size, P projection size.
"""

from __future__ import annotations

import torch
from torch import nn

from energy_contrast.method import Batch, Method, StepOutput
from energy_contrast.networks.heads import new_head
from energy_contrast.predictive.prediction import cross_products, measure_pairs, project_apart
from energy_contrast.predictive.settings import BarlowConfig


class Barlow(Method):
    """Barlow Twins.

    ``L = sum_j (1 - C_jj)^2 + lambda sum_{j != k} C_jk^2`` with ``C = 1/B sum_i z_1i z_2i^T``, of projections
    ``z = norm(g(f(x)))`` whose dimensions have mean 0 and variance 1 over the images of a view.

    Args:
        config: Weight and the shape of the projection head.
        encoder: f, with ``embedding_size``.

    Metrics: the terms before the weight: ``invariance`` (P when the views share nothing) and ``redundancy``;
    ``info_nce`` of the normalised projections at temperature 0.2; while ``diagnosing`` also what ``diagnose`` returns,
    of these.

    Source: Barlow Twins (arXiv:2103.03230), eq. 1 and 2, section 2.2; the released code.
    Departs from the paper: variances are divided by B and 1e-5 is added to them, as in the released code, so that C_jj
    of equal views is 1 / (1 + 1e-5 / var_j); algorithm 1 divides by B - 1, eq. 2 adds nothing. lambda is the released
    code's; the paper found 0.005. The paper's ImageNet runs have P = 8192, and a learning rate of their own for norms
    and biases.
    """

    Config = BarlowConfig
    has_negatives = False
    not_in_chunks = ""
    config: BarlowConfig
    paper = (
        "Zbontar, Jing, Misra, LeCun & Deny, Barlow Twins: Self-Supervised Learning via Redundancy Reduction, "
        "ICML 2021, arXiv:2103.03230"
    )

    def __init__(self, config: BarlowConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        size, layers = config.projection_size, config.projection_num_layers
        norms = {"batch_norm": True, "output_batch_norm": True}
        self.head = new_head(config, encoder, hidden_size=size, num_layers=layers, **norms)

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; draws nothing from ``generator``."""
        # 1. z = norm(g(f(x))) of all ranks: from here on, B counts the images of the global batch
        projection = project_apart(self, batch.views)  # (2, B, P)
        with torch.autocast(projection.device.type, enabled=False):
            # 2. C_jj, and the squares of all other C_jk
            own, others = cross_products(*projection)
            images = projection.shape[1]
            invariance, redundancy = (1 - own / images).square().sum(), others / images**2
            loss = invariance + self.config.redundancy_weight * redundancy
            metrics = {"invariance": invariance.detach(), "redundancy": redundancy.detach()}
            return StepOutput(loss, metrics | measure_pairs(self, projection))
