"""EBCLR: contrastive learning with an energy of single images, trained on Langevin chains.

Shapes: B images of the global batch, b of this rank, C channels, H x W pixels, P projection size, S buffer size.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from energy_contrast.chains.buffered import BufferedMethod
from energy_contrast.chains.chains import gather_chains, measure_chains, move_chains, start_chains
from energy_contrast.chains.energy import ChainEnergy, marginal
from energy_contrast.chains.restarts import Restarts
from energy_contrast.energies import marginal_energy, pair_energy
from energy_contrast.energy_based.settings import EbclrConfig
from energy_contrast.losses import info_nce, pair_similarities
from energy_contrast.method import Batch, Passes, Requirements, StepOutput
from energy_contrast.networks.heads import at_least_float32, new_head
from energy_contrast.parallel import gather
from energy_contrast.samplers import Sampler, multistage_sgld
from energy_contrast.sampling_method import PairEnergy


class Ebclr(BufferedMethod, PairEnergy):
    """EBCLR.

    ``L = L_dis + lambda (mean E(v) - mean E(x) + w sum |f|^2)`` with views v, chains x, and the energy
    ``E(v) = -log sum_m exp(-|z - z'_m|^2 / tau)`` of unit projections z against those of the second views v'.
    ``L_dis`` is InfoNCE with the logits ``-|z - z'|^2 / tau``, which are cosines at tau / 2.

    Args:
        config: Settings.
        encoder: f without its head, with ``embedding_size``. With batch norm, the energy of an image depends on its
            batch and is not E; ``requirements`` therefore has ``images_alone``.

    Metrics: ``info_nce`` (L_dis), ``energy_data``, ``energy_chains`` and ``energy_gap`` (chains minus data) always;
    while ``diagnosing`` also ``chain_movement`` (root mean square of a step), ``chain_gradient_norm``,
    ``chain_saturation`` (where the pixel range is known), ``buffer_age`` (mean count), ``reinit_share`` and what
    ``diagnose`` returns.

    Raises:
        ValueError: If ``chain_gradient`` is first-layer and the encoder is not a ``ResNet``.

    Source: EBCLR (arXiv:2202.04933), algorithms 1 and 2, eq. 11, 15 to 18 and 20 to 22; constants as released.
    Departs from the paper, as the released code does: both views are anchors, not the first alone (eq. 18);
    projections have a penalty on their length; the buffer begins with counts above K, so that its images get the least
    noise; chains that restart are drawn with replacement. As printed are ``discriminative`` one-sided,
    ``output_penalty`` none, ``first_count`` zero and ``reinit_draw`` each. Departs from both: the buffer is written
    after the optimizer step, which gives the same numbers; with ``references`` both-views, chains are compared with all
    views, since a chain is not among them.
    """

    Config = EbclrConfig
    config: EbclrConfig
    paper = "Kim & Ye, Energy-Based Contrastive Learning of Visual Representations, NeurIPS 2022, arXiv:2202.04933"

    def __init__(self, config: EbclrConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.head = new_head(config, encoder, activation="leaky_relu")
        self._restarts = _restarts(config)
        self._fill_seed = int(torch.randint(2**62, ()))  # from torch's global generator, seeded by the run

    @classmethod
    def requirements(cls, config: EbclrConfig, batch_size: int) -> Requirements:
        """Return what all methods need, ``images_alone``, and a proposal for every chain that starts from a view."""
        return replace(
            super().requirements(config, batch_size),
            num_proposals=_restarts(config).num_proposals(batch_size),
        )

    @classmethod
    def passes(cls, config: EbclrConfig) -> Passes:
        """Return the passes of both views, of every full gradient of a chain and of its end; all with gradient."""
        passes = cls.num_views + config.num_steps // config.num_inner_steps + 1
        return Passes(passes, passes)

    def new_sampler(self) -> Sampler:
        """Return multi-stage SGLD with the method's settings; its context is a ``Staged``."""
        config = self.config
        return multistage_sgld(
            self._energy,
            step_size=config.step_size * self.step_scale,
            gradient_clamp=config.gradient_clamp,
            sigma_min=config.sigma_min,
            sigma_max=config.sigma_max,
            noise_decay_count=config.noise_decay_count,
        )

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; ``generator`` draws the chains, which of them restart, and their noise."""
        # 1. z_n, z'_n: the projections of both views, of all ranks
        own = self._project(batch.views.flatten(0, 1))  # (2b, P)
        projection = gather(own.view(*batch.views.shape[:2], -1), dim=1)  # (2, B, P)
        # 2. x_n from the buffer with their counts kappa_n; a share rho of them from q_0 with kappa_n = 0
        self.buffer.to(self._buffer_device())
        chains = start_chains(
            self.buffer, self._restarts, batch.proposals, generator, self.pixel_range, like=batch.views[0]
        )
        # 3. x_n after T steps of multi-stage SGLD
        context = self._energy.context(self._references(projection.detach()))
        chains, infos = move_chains(self.sampler(), chains, context, generator, num_steps=self.config.num_steps)
        # 4. ``after_step`` stores them in the buffer, with kappa_n + 1
        self._moved = gather_chains(chains)
        # 5. their projections, now as a function of the weights
        chain_projection = gather(self._project(chains.position))  # (B, P)
        with torch.autocast(projection.device.type, enabled=False):
            # 6. the loss of both terms
            output = self._contrast(projection, chain_projection)
        if self.diagnosing:
            output.metrics.update(measure_chains(self.buffer, chains, infos, self.pixel_range))
        return output

    def chain_energy(self, batch: Batch) -> tuple[ChainEnergy, Tensor]:
        """Return the energy that moves chains, and the references that the views of ``batch`` are."""
        return self._energy, self._references(torch.stack([self._project(views) for views in batch.views]))

    def encode_references(self, images: Tensor) -> Tensor:
        """Return the projections (M, P) of reference images (M, C, H, W)."""
        return self._project(images)

    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        """Return ``E(x) = -log sum_m exp(-|z(x) - z_m|^2 / tau)`` (N,) of images, with unit projections z.

        Args:
            images: (N, C, H, W).
            references: (M, P) projections z_m, of any length.

        Source: EBCLR (arXiv:2202.04933), eq. 20. Departs from eq. 17: there, references are the second views of one
        batch; here, the caller chooses them, the same for all energies that are compared.
        """
        return self.energy_of_embedding(self.encoder(images), at_least_float32(references))

    def encode_second(self, images: Tensor) -> Tensor:
        """Return the projections (M, P) of images (M, C, H, W): both views have the same network."""
        return self._project(images)

    def pair_energy(self, first: Tensor, second: Tensor) -> Tensor:
        """Return ``E(v, v') = |z - z'|^2 / tau`` (N, M) with unit projections z.

        Source: EBCLR (arXiv:2202.04933), eq. 8.
        """
        with torch.autocast(first.device.type, enabled=False):
            return pair_energy(at_least_float32(first), at_least_float32(second), temperature=self.config.temperature)

    def energy_of_embedding(self, embedding: Tensor, references: Tensor) -> Tensor:
        """Return the energies (N,) of embeddings (N, D): of this method's own head, in copies of it too."""
        return marginal(self.head, temperature=self.config.temperature)(embedding, references)

    def _contrast(self, projection: Tensor, chain_projection: Tensor) -> StepOutput:
        config, (z, _), tau = self.config, projection, self.config.temperature / 2
        # discriminative term, eq. 18: which of the other 2B - 1 views shows the same image?
        positive, negatives = pair_similarities(*projection)  # (2B,), (2B, 2B - 2)
        if config.discriminative == "one-sided":
            positive, negatives = positive[: len(z)], negatives[: len(z)]
        discriminative = info_nce(positive, negatives, temperature=tau)
        # generative term, eq. 13 with the energy of eq. 20: down on data, up on chains
        references, both = self._references(projection), config.references == "both-views"
        data = marginal_energy(z, references, temperature=config.temperature, exclude_self=both).mean()
        chains = marginal_energy(chain_projection, references, temperature=config.temperature).mean()
        generative = data - chains + self._penalty(z, chain_projection)
        metrics = self.measure(discriminative, projection.flatten(0, 1), positive, negatives, temperature=tau)
        metrics |= {"energy_data": data.detach(), "energy_chains": chains.detach()}
        metrics["energy_gap"] = metrics["energy_chains"] - metrics["energy_data"]
        return StepOutput(discriminative + config.generative_weight * generative, metrics)

    def _penalty(self, z: Tensor, chain_projection: Tensor) -> Tensor:
        """Return the weighted squared lengths of the first views' and the chains' projections."""
        if self.config.output_penalty == "none":
            return z.new_zeros(())
        total = z.square().sum() + chain_projection.square().sum()
        return self.config.output_penalty_weight * total / (1 if self.config.output_penalty == "sum" else len(z))

    def _references(self, projection: Tensor) -> Tensor:
        """Return the references: projections of the second views (B, P), or of both (2B, P), first views first."""
        return projection[1] if self.config.references == "second-views" else projection.flatten(0, 1)

    def _project(self, images: Tensor) -> Tensor:
        return at_least_float32(self.head(self.encoder(images)))


def _restarts(config: EbclrConfig) -> Restarts:
    first_count = config.noise_decay_count + 2 if config.first_count == "above-decay" else 0
    return Restarts(config.reinit_rate, config.uniform_rate, first_count, config.reinit_draw)
