"""Heads: networks between the embedding and the loss, discarded after training."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.networks.batch_norm import GlobalBatchNorm1d
from energy_contrast.networks.drawn import make_activation


class ProjectionHead(nn.Sequential):
    """A multilayer perceptron from embeddings (B, in_size) to projections (B, out_size).

    ``p = W_L a(... a(W_1 h + b_1) ...) + b_L`` with activation a. With ``batch_norm``, every hidden layer is normalised
    before its activation and drops its bias; the last layer is linear with bias either way, unless
    ``output_batch_norm`` normalises it too, without learned scale and shift unless ``output_scale`` is set. Projections
    are not scaled to unit length; losses do that.

    Args:
        in_size: Size of the embedding.
        hidden_size: Size of every hidden layer.
        out_size: Size of the projection.
        num_layers: L, the number of linear layers, at least 1.
        batch_norm: Normalise hidden layers over the batch.
        output_batch_norm: Normalise the output over the batch.
        output_scale: Let that norm learn a scale and a shift.
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).

    Raises:
        ValueError: If ``num_layers`` is less than 1.

    >>> import torch
    >>> ProjectionHead(64, 32, 16)(torch.zeros(5, 64)).shape
    torch.Size([5, 16])

    Source: SimCLR (arXiv:2002.05709), section 2.1: g(h) = W2 relu(W1 h); the normalised output: SimSiam
    (arXiv:2011.10566), section 3, and its released code.
    """

    def __init__(
        self,
        in_size: int,
        hidden_size: int,
        out_size: int,
        *,
        num_layers: int = 2,
        batch_norm: bool = False,
        output_batch_norm: bool = False,
        output_scale: bool = False,
        activation: str = "relu",
    ) -> None:
        if num_layers < 1:
            raise ValueError(f"num_layers: a head needs a linear layer, got {num_layers}; use 1 or more")
        sizes = [in_size] + [hidden_size] * (num_layers - 1)
        layers: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            layers.append(nn.Linear(size, next_size, bias=not batch_norm))
            if batch_norm:
                layers.append(GlobalBatchNorm1d(next_size))
            layers.append(make_activation(activation))
        layers.append(nn.Linear(sizes[-1], out_size, bias=not output_batch_norm))
        if output_batch_norm:
            layers.append(GlobalBatchNorm1d(out_size).requires_grad_(output_scale))  # else fixed at 1 and 0
        super().__init__(*layers)


def new_head(config: Any, encoder: nn.Module, *, hidden_size: int = 0, **settings: Any) -> ProjectionHead:
    """Return the projection head that the settings of a method describe.

    Args:
        config: Has ``projection_size``, and ``projection_hidden_size``, of which 0 means ``hidden_size``.
        encoder: Has ``embedding_size``, the size of the head's input.
        hidden_size: Size of the hidden layers where the settings name none; 0 means the embedding size.
        settings: Others of ``ProjectionHead``.

    >>> from energy_contrast.contrastive.simclr import PairConfig
    >>> encoder = nn.Flatten()
    >>> encoder.embedding_size = 4
    >>> new_head(PairConfig(projection_size=3), encoder)[-1]
    Linear(in_features=4, out_features=3, bias=True)

    Source: ours.
    """
    embedding_size = cast(int, encoder.embedding_size)
    hidden_size = config.projection_hidden_size or hidden_size or embedding_size
    return ProjectionHead(embedding_size, hidden_size, config.projection_size, **settings)


def at_least_float32(projection: Tensor) -> Tensor:
    """Return projections in a precision for losses: float32 if autocast left 16 bits, else unchanged.

    >>> at_least_float32(torch.zeros(2, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return projection.to(torch.promote_types(projection.dtype, torch.float32))


def unit(projection: Tensor) -> Tensor:
    """Return projections scaled to unit length, in float32 if autocast left 16 bits.

    ``p / |p|``

    Args:
        projection: (N, P) of any length.

    Returns:
        (N, P) unit vectors.

    >>> unit(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])

    Source: VEM, algorithm 1, normalisation of q, k and B; as in MoCo (arXiv:1911.05722).
    """
    return F.normalize(at_least_float32(projection), dim=1)
