"""VEM: the negatives of a contrastive loss are samples of an energy defined by the queries. Shared by all its forms.

The forms differ in what the bank holds: unit vectors (``vem_bank.py``) or images (``vem_image.py``).

Shapes: B images of the global batch, C channels, H x W pixels, D embedding size, P projection size, M negatives.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from energy_contrast.energy_based.settings import VemConfig
from energy_contrast.losses import info_nce
from energy_contrast.method import Batch, Passes, Progress, StepOutput
from energy_contrast.networks.heads import at_least_float32, new_head, unit
from energy_contrast.networks.slow_copy import follow, slow_copy
from energy_contrast.parallel import gather
from energy_contrast.sampling_method import PairEnergy, SamplingMethod


class Negatives(NamedTuple):
    """Negatives of one step.

    Attributes:
        vectors: (M, P) unit vectors without gradient, the same on every rank.
        metrics: Detached scalars that describe the bank.
    """

    vectors: Tensor
    metrics: dict[str, Tensor]


class Vem(SamplingMethod, PairEnergy):
    """VEM; a subclass defines the bank and how it moves.

    ``L = 1/B sum_i -log( exp(q_i k_i / tau) / (exp(q_i k_i / tau) + sum_j exp(q_i b_j / tau)) )`` with unit vectors
    ``q_i = g(f(x_i))`` of one view, ``k_i = g'(f'(x_i'))`` of the other, and M constants b_j that have just made
    ``num_steps`` moves down the energy ``E(b) = -log sum_i exp(<b, q_i> / tau_bank)``, to where queries are dense.

    Args:
        config: Settings.
        encoder: f, with ``embedding_size``.

    Metrics: ``info_nce`` always; while ``diagnosing`` also what ``diagnose`` returns, of queries and keys, and the
    subclass's metrics of its bank.

    Source: VEM, algorithms 1 and 2.
    Departs from the paper: the listings take keys from the queries' network and differentiate both (``key_encoder:
    shared``). Repulsion then acts on queries alone while attraction acts on both, and if the two views of an image
    differ more than images do, the representation collapses to one point. ``momentum``, the default, has MoCo's key
    network (arXiv:1911.05722, algorithm 1), averaged after the optimizer step. The queries are constants while the bank
    moves. The temperatures, which the listings omit, divide the similarities. The objective of eq. 7, with samples of
    images, is EBCLR's with ``generative_weight`` 1: see docs/methods/vem.md.
    """

    Config = VemConfig
    paper = (
        "Du, Wang, Huang & Wang, Variational Energy-Based Models: A Probabilistic Framework for Contrastive "
        "Self-Supervised Learning, undated, its newest references of 2022"
    )
    config: VemConfig

    def __init__(self, config: VemConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.head = new_head(config, encoder)
        if config.key_encoder == "momentum":
            self.key_encoder, self.key_head = slow_copy(self.encoder), slow_copy(self.head)

    @classmethod
    def passes(cls, config: Any) -> Passes:
        """Return the passes of queries and keys, with gradient through keys only if both share a network."""
        return Passes(2, 1 if config.key_encoder == "momentum" else 2)

    def compile_parts(self, **options: Any) -> None:
        """Compile the encoders and the moves of the bank."""
        super().compile_parts(**options)
        if self.config.key_encoder == "momentum":
            self.key_encoder.compile(**options)

    @abstractmethod
    def move_bank(self, query: Tensor, batch: Batch, generator: torch.Generator) -> Negatives:
        """Move the bank among the constants ``query`` (B, P) and return negatives; ``after_step`` stores the bank."""

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; ``generator`` draws the noise of the bank's moves."""
        # 1. q = g(f(x)), k = g'(f'(x')), unit vectors of the global batch
        query, key = self._project(batch.views)  # (B, P) twice
        # 2. the bank moves among these queries before it serves as their negatives
        bank, bank_metrics = self.move_bank(query.detach(), batch, generator)  # (M, P)
        with torch.autocast(query.device.type, enabled=False):
            # 3. the key of the same image against the bank
            positive, negatives = (query * key).sum(dim=1), query @ bank.T  # (B,), (B, M)
            # 4. the loss, averaged over the B queries
            tau, vectors = self.config.temperature, torch.cat([query, key])
            loss = info_nce(positive, negatives, temperature=tau)
            metrics = self.measure(loss, vectors, positive, negatives, temperature=tau)
        return StepOutput(loss, metrics | bank_metrics)

    def after_step(self, progress: Progress) -> None:
        """Move the momentum key network, if there is one, towards the query network."""
        if self.config.key_encoder == "momentum":
            follow(self.key_encoder, self.encoder, momentum=self.config.key_momentum)
            follow(self.key_head, self.head, momentum=self.config.key_momentum)

    def key_networks(self) -> tuple[nn.Module, nn.Module]:
        """Return the encoder f' and the head g' of the keys."""
        if self.config.key_encoder == "momentum":
            return self.key_encoder, self.key_head
        return self.encoder, self.head

    def encode_references(self, images: Tensor) -> Tensor:
        """Return the queries (M, P) of reference images (M, C, H, W)."""
        return unit(self.head(self.encoder(images)))

    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        """Return ``E(x) = -log sum_m exp(<u(x), q_m> / tau_bank)`` (N,) of images, with keys ``u = g'(f'(x)) / |..|``.

        Args:
            images: (N, C, H, W).
            references: (M, P) queries q_m, unit vectors.

        Source: VEM, algorithm 1: the energy that the bank samples, evaluated at the key of an image. Departs from the
        paper: it defines no energy of images; its queries are those of one batch, here of images that the caller
        chooses.
        """
        key = self.encode_second(images)
        with torch.autocast(key.device.type, enabled=False):
            cosine = key @ at_least_float32(references).T  # (N, M)
            return -torch.logsumexp(cosine / self.config.bank_temperature, dim=1)

    def encode_second(self, images: Tensor) -> Tensor:
        """Return the keys (M, P) of images (M, C, H, W), unit vectors."""
        encoder, head = self.key_networks()
        return unit(head(encoder(images)))

    def pair_energy(self, first: Tensor, second: Tensor) -> Tensor:
        """Return ``E(x, v) = -<q, k> / tau`` (N, M) of queries (N, P) and keys (M, P), unit vectors.

        Source: VEM, eq. 2. Departs from the paper: its terms ``-log p_d(x) - log p_d(v)`` are left out, since the
        density of the data is unknown; in ``p(v | x)`` the first of them cancels.
        """
        with torch.autocast(first.device.type, enabled=False):
            return -(at_least_float32(first) @ at_least_float32(second).T) / self.config.temperature

    def _project(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys (B, P) of all ranks' images."""
        if self.config.key_encoder == "momentum":
            query = gather(unit(self.head(self.encode(views[0]))))
            with torch.no_grad():
                return query, gather(unit(self.key_head(self.encode(views[1], self.key_encoder))))
        # both views in one pass, so that batch norm sees them together
        projection = unit(self.head(self.encode(views.flatten(0, 1))))  # (2B, P)
        query, key = gather(projection.view(*views.shape[:2], -1), dim=1)
        return query, key
