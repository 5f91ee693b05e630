"""VEM with a bank of images: Langevin chains in pixel space, encoded into negatives.

Shapes: B images of the global batch, b of this rank, C channels, H x W pixels, P projection size, M images of the bank.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from energy_contrast.chains.chains import Chains, gather_chains, measure_chains, move_chains, start_chains, store_chains
from energy_contrast.chains.energy import ChainEnergy, marginal
from energy_contrast.chains.restarts import Restarts
from energy_contrast.chains.trace import TracedMethod
from energy_contrast.energy_based.settings import VemImageConfig
from energy_contrast.energy_based.vem import Negatives, Vem
from energy_contrast.memory.replay_buffer import ReplayBuffer, available_bytes
from energy_contrast.method import Batch, Draw, Passes, Progress, Requirements
from energy_contrast.networks.heads import unit
from energy_contrast.parallel import gather
from energy_contrast.samplers import Sampler, Staged, proximal_sgld


class VemImage(Vem, TracedMethod):
    """VEM with a bank of M images, B of which move and are encoded in a step: different ones if M is at least B.

    The energy of an image is that of its normalised key, ``E(x) = -log sum_i exp(<u(x), q_i> / tau_bank)`` with
    ``u = g'(f'(x)) / |g'(f'(x))|`` of the key network, and a move ``x <- x - alpha clamp(grad E(x), -delta, delta)
    + sigma n``. The negatives are the B vectors u(x) at the chains' ends.

    Metrics beside those of ``Vem``, while ``diagnosing``: ``bank_cosine`` (mean over the negatives of the largest
    cosine with a query) and what ``measure_chains`` returns.

    Source: VEM, eq. 8 and appendix E.5; the moves are EBCLR's (arXiv:2202.04933), eq. 21.
    Departs from the paper: it reports this form's time and its accuracy (66.88 %, appendix E.5, with a bank of 128
    images at batch 128; the default here is 4,096) and gives no listing. Eq. 8, whose misprint ``feature_langevin``
    names, has no clamp, and noise of sqrt(2 alpha) times an intensity. Energy, bank and negatives are what algorithm 1
    becomes if particles are images; everything else about them is ours. The ends of the chains are constants, as the
    bank is in algorithm 1: no gradient reaches the network through them.
    """

    Config = VemImageConfig
    config: VemImageConfig

    def __init__(self, config: VemImageConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.bank = ReplayBuffer(config.bank_size)
        self.memories = {"bank": self.bank}
        self._restarts = _restarts(config)
        self._fill_seed = int(torch.randint(2**62, ()))  # from torch's global generator, seeded by the run
        self._moved: Chains | None = None

    @classmethod
    def requirements(cls, config: VemImageConfig, batch_size: int) -> Requirements:
        """Return what all methods need, ``images_alone``, and a proposal for every chain that starts from a view."""
        return replace(
            super().requirements(config, batch_size),
            num_proposals=_restarts(config).num_proposals(batch_size),
            images_alone=True,
        )

    @classmethod
    def passes(cls, config: VemImageConfig) -> Passes:
        """Return the passes of ``Vem``, of every move of a chain (with gradient) and of its end (without)."""
        forward, backward = super().passes(config)
        return Passes(forward + config.num_steps + 1, backward + config.num_steps)

    def memory_bytes(self, shape: tuple[int, int, int]) -> int:
        """Return the bytes of the bank, if they fit on the network's device."""
        device = next(self.parameters()).device
        needed, available = self.bank.num_bytes(shape), available_bytes(device)
        if needed > available:
            raise ValueError(
                f"bank_size: {self.bank.size} images of {'x'.join(map(str, shape))} do not fit on {device}, got "
                f"{needed / 1e9:,.2f} GB needed and {available / 1e9:,.2f} GB available; use fewer"
            )
        return needed

    def kept_bytes(self, shape: tuple[int, int, int], num_images: int) -> int:
        """Return what all methods keep, and the bank of images."""
        return super().kept_bytes(shape, num_images) + self.bank.num_bytes(shape)

    def require_images_of(self, shape: tuple[int, int, int]) -> None:
        """Check that the bank holds images of ``shape``."""
        self.bank.require_images_of(shape)

    def start(self, draw: Draw) -> None:
        """Fill the bank with views of training images, or uniform pixels."""
        generator = torch.Generator().manual_seed(self._fill_seed)
        self._restarts.fill(self.bank, draw, generator, next(self.parameters()).device, self.pixel_range)

    def move_bank(self, query: Tensor, batch: Batch, generator: torch.Generator) -> Negatives:
        """Move chains from the bank towards the queries (B, P), and encode their ends as negatives."""
        self.bank.to(query.device)
        chains = start_chains(
            self.bank,
            self._restarts,
            batch.proposals,
            generator,
            self.pixel_range,
            like=batch.views[0],
            distinct=True,
        )
        chains, infos = move_chains(
            self.sampler(), chains, lambda step, position: query, generator, num_steps=self.config.num_steps
        )
        self._moved = gather_chains(chains)
        encoder, head = self.key_networks()
        with torch.no_grad():
            vectors = gather(unit(head(encoder(chains.position))))  # (B, P)
        if not self.diagnosing:
            return Negatives(vectors, {})
        with torch.autocast(query.device.type, enabled=False):
            cosine = (vectors @ query.T).amax(dim=1).mean()
        return Negatives(vectors, {"bank_cosine": cosine} | measure_chains(self.bank, chains, infos, self.pixel_range))

    def after_step(self, progress: Progress) -> None:
        """Write the step's chains to the bank, and move the key network."""
        super().after_step(progress)
        if self._moved is not None:
            store_chains(self.bank, self._moved)
            self._moved = None

    def chain_energy(self, batch: Batch) -> tuple[ChainEnergy, Tensor]:
        """Return the energy that moves chains, and the queries of the first views of ``batch``."""
        return self._chain_energy(), unit(self.head(self.encoder(batch.views[0])))

    def _chain_energy(self) -> ChainEnergy:
        # On unit vectors |u - q|^2 / (2 tau) = (1 - <u, q>) / tau.
        encoder, head = self.key_networks()
        return ChainEnergy(encoder, marginal(head, temperature=2 * self.config.bank_temperature))

    def new_sampler(self) -> Sampler:
        """Return clamped Langevin dynamics towards queries; its context is a ``Staged`` around them (B, P)."""
        energy = self._chain_energy()

        def energy_of_chains(position: Tensor, staged: Staged) -> Tensor:
            return energy(position, staged.context)

        return proximal_sgld(
            energy_of_chains,
            step_size=self.config.step_size * self.step_scale,
            gradient_clamp=self.config.gradient_clamp,
            noise_std=self.config.noise_std,
        )


def _restarts(config: VemImageConfig) -> Restarts:
    uniform_rate = 1.0 if config.bank_init == "uniform" else 0.0
    return Restarts(config.reinit_rate, uniform_rate, first_count=1, drawn="without-replacement")
