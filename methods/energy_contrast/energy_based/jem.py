"""JEM: a classifier whose logits also define an energy of images; trained on labels and on Langevin chains.

Shapes: V views, B images of the global batch, b of this rank, C channels, H x W pixels, D embedding size, K classes,
S buffer size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from energy_contrast.chains.buffered import BufferedMethod
from energy_contrast.chains.chains import gather_chains, measure_chains, move_chains, own_noise, start_chains
from energy_contrast.chains.energy import ChainEnergy
from energy_contrast.chains.restarts import Restarts, class_gaussian_samples
from energy_contrast.classifier import Classifier, measure_classes, require_classes
from energy_contrast.energies import classifier_energy
from energy_contrast.energy_based.settings import JemConfig
from energy_contrast.method import Batch, Draw, Passes, Requirements, StepOutput
from energy_contrast.networks.heads import at_least_float32
from energy_contrast.parallel import gather, own_share, sum_over_ranks, world_size
from energy_contrast.samplers import Sampler, Staged, proximal_sgld
from energy_contrast.sampling_method import ImageEnergy


class Jem(BufferedMethod, Classifier, ImageEnergy):
    """JEM, and its variants JEM++ and SADA-JEM.

    ``L = mean_n (-log p(y_n|x_n) + w (E(x_n) - E(x~_n)))`` with logits ``f(x) = W h(x) + c``,
    ``p(y|x) = softmax f(x)``, ``E(x) = -log sum_y exp f_y(x)``, images x with noise, and chains x~ that moved by
    ``x <- x - alpha grad E(x) + sigma n``. If these were exact samples of p(x), the gradient of L at w = 1 would be
    that of ``-mean log p(x, y)``.

    With ``plusplus`` the gradient is clamped to [-epsilon, epsilon], may go through the first layer alone (see
    ``ChainEnergy``), and new chains are samples of a Gaussian for each class. ``sada`` adds to that: the loss is
    evaluated at ``theta + r g / |g|`` with its gradient g at theta (sharpness-aware minimisation), and E(x_n) uses
    second views.

    Args:
        config: Settings.
        encoder: h, with ``embedding_size``. With batch norm, the energy of an image depends on its batch and is not
            E; ``requirements`` therefore has ``images_alone``.
        num_classes: K.

    Metrics: ``cross_entropy`` and ``accuracy`` on the batch, ``energy_data``, ``energy_chains`` and ``energy_gap``
    (chains minus data) always; while ``diagnosing`` also what ``measure_chains`` returns.

    Raises:
        ValueError: If there are fewer than two classes, or ``chain_gradient`` is first-layer and the encoder is not a
            ``ResNet``.

    Source: JEM (arXiv:1912.03263), eq. 5 to 8, algorithm 1, constants as released; JEM++ (arXiv:2109.09032); SADA-JEM
    (Yang, Su & Ji, CVPR 2023); sharpness-aware minimisation: arXiv:2010.01412, eq. 2 and algorithm 1.
    Departs from the paper: p(x) and p(y|x) learn from the same images, where the released code draws two batches. The
    buffer is written after the optimizer step, which gives the same numbers. JEM++: the Gaussians have the statistics
    of a class in the batch, not in the training set, and the buffer begins with samples of one Gaussian of all
    classes. SADA-JEM: second views are whatever the caller provides, where the paper takes images without augmentation;
    how its chains move and start is taken from JEM++. The released code of both clips new starts and every move to the
    range of pixels, draws classes evenly and has ``noise_std`` 0; SADA-JEM's also has ``input_noise`` 0, and a radius
    of 2 that is scaled by each weight's size. Here nothing is clipped.
    """

    Config = JemConfig
    config: JemConfig
    paper = (
        "Grathwohl, Wang, Jacobsen, Duvenaud, Norouzi & Swersky, Your Classifier is Secretly an Energy Based Model "
        "and You Should Treat it Like One, ICLR 2020, arXiv:1912.03263"
    )
    needs_labels = True

    def __init__(self, config: JemConfig, encoder: nn.Module, num_classes: int = 0) -> None:
        require_classes("jem", num_classes)
        super().__init__(config, encoder, num_classes)
        self.num_classes, self.num_views = num_classes, _num_views(config)
        self.classifier = nn.Linear(cast(int, encoder.embedding_size), num_classes)
        uniform_rate = 1.0 if config.variant == "plain" else 0.0
        self._restarts = Restarts(config.reinit_rate, uniform_rate, first_count=1, drawn="each")
        self._fill_seed = int(torch.randint(2**62, ()))  # from torch's global generator, seeded by the run

    @classmethod
    def requirements(cls, config: JemConfig, batch_size: int) -> Requirements:
        """Return what the method needs: labels, ``images_alone``, and one view, or two for sada."""
        return replace(super().requirements(config, batch_size), num_views=_num_views(config))

    @classmethod
    def passes(cls, config: JemConfig) -> Passes:
        """Return the passes of views and ends of chains (twice for sada) and of every full gradient of a chain."""
        of_loss = (_num_views(config) + 1) * (2 if config.variant == "sada" else 1)
        passes = of_loss + config.num_steps // config.num_inner_steps
        return Passes(passes, passes)

    def new_sampler(self) -> Sampler:
        """Return Langevin dynamics with the method's settings; its context is a ``Staged``."""

        def energy(position: Tensor, staged: Staged) -> Tensor:
            return self._energy(position, staged.context)

        return proximal_sgld(
            energy,
            step_size=self.config.step_size * self.step_scale,
            gradient_clamp=math.inf if self.config.variant == "plain" else self.config.gradient_clamp,
            noise_std=self.config.noise_std,
        )

    def start(self, draw: Draw) -> None:
        """Fill the buffer with uniform pixels, or with samples of a Gaussian of training images."""

        def draw_gaussian(count: int, generator: torch.Generator) -> Tensor:
            images = draw(count, generator)
            noise = torch.randn(count, count, generator=generator, device=generator.device).to(images)
            rows = torch.arange(count, device=images.device)
            return class_gaussian_samples(images, torch.zeros_like(rows), rows, noise)

        super().start(draw if self.config.variant == "plain" else draw_gaussian)

    def classify(self, images: Tensor) -> Tensor:
        """Return the logits (B, K) of images (B, C, H, W)."""
        return at_least_float32(self.classifier(self.encoder(images)))

    def encode_references(self, images: Tensor) -> Tensor:
        """Return an empty tensor (M, 0): the energy of an image needs no references."""
        return images.new_zeros(len(images), 0)

    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        """Return ``E(x) = -log sum_k exp(f_k(x))`` (N,) of images (N, C, H, W), with logits f.

        Args:
            images: (N, C, H, W).
            references: (M, 0), not read.

        Source: JEM (arXiv:1912.03263), eq. 7.
        """
        return classifier_energy(self.classify(images))

    def energy_of_embedding(self, embedding: Tensor, references: Tensor) -> Tensor:
        """Return the energies (N,) of embeddings (N, D): of this method's own classifier, in copies of it too."""
        return classifier_energy(at_least_float32(self.classifier(embedding)))

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; ``generator`` draws noise, the chains, and which of them restart."""
        batch_size = world_size() * batch.views.shape[1]
        # 1. x_n, with noise
        noise = torch.stack([own_noise(view, batch_size, generator) for view in batch.views])
        views = batch.views + self.config.input_noise * noise  # (V, b, C, H, W)
        # 2. x~_n from the buffer, or anew with probability rho
        self.buffer.to(self._buffer_device())
        starts = self._starts(batch, generator)
        chains = start_chains(self.buffer, self._restarts, starts, generator, self.pixel_range, like=batch.views[0])
        # 3. x~_n after its steps of SGLD; ``after_step`` stores them in the buffer
        context = self._energy.context(None)
        chains, infos = move_chains(self.sampler(), chains, context, generator, num_steps=self.config.num_steps)
        self._moved = gather_chains(chains)
        # 4. the loss of both terms
        with self._first_precision(views.device):
            loss, metrics = self._joint_loss(views, batch.labels, chains.position)
        if self.config.variant == "sada":
            loss, _ = self._joint_loss(views, batch.labels, chains.position, self._uphill(loss))
        if self.diagnosing:
            metrics |= measure_chains(self.buffer, chains, infos, self.pixel_range)
        return StepOutput(loss, metrics)

    def chain_energy(self, batch: Batch) -> tuple[ChainEnergy, None]:
        """Return the energy that moves chains, which needs no references."""
        return self._energy, None

    def _starts(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return new starts (b, C, H, W) for this rank's chains; the empty proposals if starts are uniform pixels."""
        if self._restarts.uniform_rate or not self.config.reinit_rate:
            return batch.proposals
        images, labels = gather(batch.views[-1].detach()), gather(batch.labels)
        count, where = len(labels), generator.device
        picked = own_share(torch.randint(count, (count,), generator=generator, device=where)).to(labels)
        noise = own_share(torch.randn(count, count, generator=generator, device=where)).to(images)
        with torch.autocast(images.device.type, enabled=False):
            return class_gaussian_samples(images, labels, picked, noise)

    def _joint_loss(
        self, views: Tensor, labels: Tensor, chains: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and its metrics, at ``weights`` instead of the method's own if they are given."""
        logits = self._logits(views[0], weights)  # (b, K)
        likely = logits if len(views) == 1 else self._logits(views[1], weights)
        sampled = self._logits(chains, weights)
        with torch.autocast(views.device.type, enabled=False):
            loss, metrics = measure_classes(logits, labels)
            data, samples = classifier_energy(likely).mean(), classifier_energy(sampled).mean()
            metrics |= {"energy_data": data.detach(), "energy_chains": samples.detach()}
            metrics["energy_gap"] = metrics["energy_chains"] - metrics["energy_data"]
            return loss + self.config.generative_weight * (data - samples), metrics

    def _first_precision(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return the context of the first loss: for sada float32 in place of float16, which loses small gradients.

        The caller's loss scale lifts those of the loss that ``forward`` returns, not the one that is taken here.
        """
        is_float16 = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.float16
        if self.config.variant == "sada" and is_float16:
            return torch.autocast(device.type, enabled=False)
        return nullcontext()

    def _uphill(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the weights by name, moved by rho along the gradient of the global batch's loss."""
        learning = {name: weight for name, weight in self.named_parameters() if weight.requires_grad}
        with torch.autocast(loss.device.type, enabled=False):  # it would also round the way back
            gradients = torch.autograd.grad(loss, list(learning.values()))
        whole = sum_over_ranks(torch.cat([gradient.flatten() for gradient in gradients])) / world_size()
        moves = (self.config.sharpness_radius * whole / whole.norm().clamp_min(1e-12)).split(
            [weight.numel() for weight in learning.values()]
        )
        return {
            name: weight + move.view_as(weight) for (name, weight), move in zip(learning.items(), moves, strict=True)
        }

    def _logits(self, images: Tensor, weights: Mapping[str, Tensor] | None) -> Tensor:
        if weights is None:
            return self.classify(images)
        of_encoder, of_classifier = (
            {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
            for prefix in ("encoder.", "classifier.")
        )
        with torch.compiler.set_stance("force_eager"):  # a compiled encoder would use its own weights
            embedding = functional_call(self.encoder, of_encoder, (images,))
        return at_least_float32(functional_call(self.classifier, of_classifier, (embedding,)))


def _num_views(config: JemConfig) -> int:
    return 2 if config.variant == "sada" else 1
