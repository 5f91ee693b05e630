"""VEM with a bank of unit vectors, moved by Langevin dynamics or Stein variational gradient descent.

Shapes: B images of the global batch, P projection size, M bank size.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from energy_contrast.diagnostics import effective_rank
from energy_contrast.energy_based.settings import VemBankConfig, VemLangevinConfig, VemSvgdConfig
from energy_contrast.energy_based.vem import Negatives, Vem
from energy_contrast.memory.particle_bank import ParticleBank
from energy_contrast.method import Batch, Draw, Progress
from energy_contrast.samplers.particles import feature_langevin, svgd
from energy_contrast.samplers.sampler import Sampler, SamplerState


class VemBank(Vem):
    """VEM with a bank of M particles; a subclass defines the sampler.

    In training step k of K the first move has the length alpha, or ``alpha (1 + cos(pi k / K)) / 2`` with ``cosine``.
    With ``bank_momentum`` or ``bank_weight_decay`` a move follows the velocity of ``accelerate``, which the bank
    stores beside its particles.

    Metrics beside those of ``Vem``, while ``diagnosing``: ``bank_movement`` (mean angle of the step's moves, radians),
    ``bank_cosine`` (mean over the bank of the largest cosine with a query) and ``bank_effective_rank``.

    Source: VEM, algorithms 1 and 2; momentum, weight decay and cosine: its appendix D.
    Departs from the paper: it does not say how the bank begins; ``from_features`` follows AdCo (arXiv:2011.08435),
    but without training the bank. Appendix D trains the bank by SGD (learning rate 1.0 or 0.5, momentum 0.9, weight
    decay 1e-4, cosine), which is neither in the listings nor in the defaults here. How SGD combines with the listings
    is our choice: their step size multiplies the velocity, their noise is not part of it, and the learning rate is
    ``step_size``. Weight decay shortens a particle just before it is normalised again: without momentum, its only
    effect is on the length of a move, by the factor ``1 / (1 - alpha lambda)``. A run that is given more epochs takes
    its next step with the rate of the old end.
    """

    Config = VemBankConfig
    not_in_chunks = ""
    config: VemBankConfig
    bank_rate: Tensor | None

    def __init__(self, config: VemBankConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.bank = ParticleBank(config.bank_size, config.projection_size, moving=config.bank_momentum > 0)
        # factor of alpha in the present training step; None, and thus not in checkpoints, if it is constant
        self.register_buffer("bank_rate", torch.ones(()) if config.bank_schedule == "cosine" else None)
        self._fill_seed = int(torch.randint(2**62, ()))  # from torch's global generator, seeded by the run
        self._moved: SamplerState | None = None

    @property
    def step_size(self) -> Tensor:
        """The length of the first move of this training step, ()."""
        size = self.config.step_size * self.step_scale
        return size if self.bank_rate is None else size * self.bank_rate

    @abstractmethod
    def draw_noise(self, generator: torch.Generator) -> Tensor:
        """Return the noise (M, P) of one move."""

    def start(self, draw: Draw) -> None:
        """Fill the bank with the untrained network's projections of training views, if ``bank_init`` says so."""
        if self.config.bank_init == "from_features":
            # copies, so that batch norm uses the views' statistics and the method's running statistics stay untouched
            network = nn.Sequential(copy.deepcopy(self.encoder), copy.deepcopy(self.head)).train()
            generator = torch.Generator(self.bank.particles.device).manual_seed(self._fill_seed)
            self.bank.fill(network, draw, generator)

    @torch.no_grad()
    def move_bank(self, query: Tensor, batch: Batch, generator: torch.Generator) -> Negatives:
        """Move all particles ``num_steps`` times among the queries (B, P), identically on every rank."""
        with torch.autocast(query.device.type, enabled=False):
            sampler = self.sampler()
            state = sampler.init(self.bank.particles)._replace(velocity=self.bank.velocity)
            for _ in range(self.config.num_steps):
                state, _ = sampler.step(state, query, self.draw_noise(generator))
            self._moved = state
            return Negatives(state.position, self._measure_bank(query, state.position) if self.diagnosing else {})

    def not_recorded(self) -> str:
        """Refuse a step size of the bank that changes over the run."""
        if self.config.bank_schedule == "cosine":
            return "bank_schedule: cosine changes it every step; constant can be recorded"
        return super().not_recorded()

    def after_step(self, progress: Progress) -> None:
        """Store the moved particles and their velocity, set the next step size, and move the key network."""
        super().after_step(progress)
        if self._moved is not None:
            self.bank.store(self._moved.position, self._moved.velocity)
            self._moved = None
        if self.bank_rate is not None:
            self.bank_rate.fill_((1 + math.cos(math.pi * progress.step / progress.num_steps)) / 2)

    def _measure_bank(self, query: Tensor, moved: Tensor) -> dict[str, Tensor]:
        chord = (moved - self.bank.particles).norm(dim=1)  # (M,)
        return {
            "bank_movement": (2 * torch.asin(chord.div(2).clamp_max(1))).mean(),
            "bank_cosine": (moved @ query.T).amax(dim=1).mean(),
            "bank_effective_rank": effective_rank(moved),
        }


class VemLangevin(VemBank):
    """VEM whose bank of unit vectors moves by Langevin dynamics among the queries.

    See ``Vem``, ``VemBank`` and ``feature_langevin``.

    Source: VEM, algorithm 1.
    Departs from the paper: see ``feature_langevin`` for the update. The default step size is 0.01, not 1: the listing's
    drift has a factor 1/N, so that at a batch of N = 256 its effective step size is 0.004.
    """

    Config = VemLangevinConfig
    config: VemLangevinConfig

    def new_sampler(self) -> Sampler:
        """Return Langevin dynamics with the method's settings; its context is the queries (B, P)."""
        return feature_langevin(
            temperature=self.config.bank_temperature,
            step_size=self.step_size,
            step_schedule=self.config.step_schedule,
            noise_intensity=self.config.noise_intensity,
            noise_schedule=self.config.noise_schedule,
            update=self.config.update,
            momentum=self.config.bank_momentum,
            weight_decay=self.config.bank_weight_decay,
        )

    def draw_noise(self, generator: torch.Generator) -> Tensor:
        """Return standard normal numbers (M, P)."""
        particles = self.bank.particles
        noise = torch.randn(particles.shape, generator=generator, device=generator.device, dtype=particles.dtype)
        return noise.to(particles.device)


class VemSvgd(VemBank):
    """VEM whose bank of unit vectors moves by Stein variational gradient descent among the queries.

    See ``Vem``, ``VemBank`` and ``svgd``.

    Source: VEM, algorithm 2 and eq. 9.
    Departs from the paper: see ``svgd`` for the update. The default kernel is that of eq. 9, not of the listing, with
    which the particles gather on one line; the default bank has 1,024 particles, not 4,096.
    """

    Config = VemSvgdConfig
    config: VemSvgdConfig

    def new_sampler(self) -> Sampler:
        """Return Stein variational gradient descent with the method's settings; its context is the queries (B, P)."""
        return svgd(
            temperature=self.config.bank_temperature,
            step_size=self.step_size,
            step_schedule=self.config.step_schedule,
            kernel=self.config.kernel,
            update=self.config.update,
            momentum=self.config.bank_momentum,
            weight_decay=self.config.bank_weight_decay,
        )

    def draw_noise(self, generator: torch.Generator) -> Tensor:
        """Return the particles as a placeholder: the sampler uses no noise."""
        return self.bank.particles
