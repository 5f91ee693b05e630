"""VICReg: the two views agree, every dimension keeps its variance, dimensions are decorrelated; no negatives.

Shapes: B images, C channels, H x W pixels, D embedding size, P projection size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.method import Batch, Method, StepOutput
from energy_contrast.networks.heads import new_head
from energy_contrast.predictive.prediction import cross_products, measure_pairs, project_apart
from energy_contrast.predictive.settings import VicregConfig


class Vicreg(Method):
    """VICReg.

    ``L = lambda 1/BP sum |z_1 - z_2|^2 + mu/2 (v(z_1) + v(z_2)) + nu (c(z_1) + c(z_2))`` with projections z = g(f(x)),
    v of ``lack_of_spread`` and c of ``shared_variation``.

    Args:
        config: Weights and the shape of the projection head.
        encoder: f, with ``embedding_size``.

    Metrics: the terms before their weights: ``invariance``, ``variance`` (the mean of both v) and ``covariance`` (the
    sum of both c); ``info_nce`` of the projections at temperature 0.2; while ``diagnosing`` also what ``diagnose``
    returns, of the projections.

    Source: VICReg (arXiv:2105.04906), eq. 1 to 6, algorithm 1.
    Departs from the paper: eq. 5 divides the squared distance by B and eq. 6 adds both v; algorithm 1 and the released
    code, with which lambda = mu = 25 was found, divide by B P and halve. Batch norm and statistics are of the global
    batch. The head's last layer has a bias, which no term depends on. The paper's ImageNet runs have P = 8192.
    """

    Config = VicregConfig
    has_negatives = False
    not_in_chunks = ""
    config: VicregConfig
    paper = (
        "Bardes, Ponce & LeCun, VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning, "
        "ICLR 2022, arXiv:2105.04906"
    )

    def __init__(self, config: VicregConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        size, layers = config.projection_size, config.projection_num_layers
        self.head = new_head(config, encoder, hidden_size=size, num_layers=layers, batch_norm=True)

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; draws nothing from ``generator``."""
        # 1. z = g(f(x)) of all ranks: from here on, B counts the images of the global batch
        projection = project_apart(self, batch.views)  # (2, B, P)
        with torch.autocast(projection.device.type, enabled=False):
            # 2. the three terms
            invariance = F.mse_loss(*projection)
            variance = torch.stack([lack_of_spread(z) for z in projection]).mean()
            covariance = torch.stack([shared_variation(z) for z in projection]).sum()
            weights = self.config
            loss = weights.invariance * invariance + weights.variance * variance + weights.covariance * covariance
            terms = {"invariance": invariance, "variance": variance, "covariance": covariance}
            metrics = {name: term.detach() for name, term in terms.items()}
            return StepOutput(loss, metrics | measure_pairs(self, projection))


def lack_of_spread(z: Tensor) -> Tensor:
    """Return by how much the standard deviations of dimensions fall short of 1, on average over dimensions.

    ``v(z) = 1/P sum_j max(0, 1 - sqrt(var(z_j) + 1e-4))``, the variance over images with the divisor B - 1.

    Args:
        z: (B, P), of at least two images.

    Returns:
        () in [0, 0.99].

    Raises:
        ValueError: If there are fewer than two images.

    >>> lack_of_spread(torch.tensor([[1.0, 3.0], [-1.0, 3.0]]))
    tensor(0.4950)

    Source: VICReg (arXiv:2105.04906), eq. 1 and 2, with gamma = 1 and epsilon = 1e-4.
    """
    _check_batch(z)
    return F.relu(1 - torch.sqrt(z.var(dim=0) + 1e-4)).mean()


def shared_variation(z: Tensor) -> Tensor:
    """Return the sum of squared covariances over all pairs of dimensions, divided by the number of dimensions.

    ``c(z) = 1/P sum_{j != k} C_jk^2``, ``C = 1/(B - 1) sum_i (z_i - mean)(z_i - mean)^T``.

    Args:
        z: (B, P), of at least two images.

    Returns:
        () at least 0, up to rounding.

    Raises:
        ValueError: If there are fewer than two images.

    >>> shared_variation(torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]))
    tensor(1.)

    Source: VICReg (arXiv:2105.04906), eq. 3 and 4.
    """
    _check_batch(z)
    images, dimensions = z.shape
    centred = z - z.mean(dim=0)
    _, others = cross_products(centred, centred)
    return others / ((images - 1) ** 2 * dimensions)


def _check_batch(z: Tensor) -> None:
    if z.dim() != 2 or len(z) < 2:
        raise ValueError(f"statistics over a batch: need at least two images, got {tuple(z.shape)}; use (B, P)")
