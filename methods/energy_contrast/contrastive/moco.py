"""MoCo v2: a query finds its key among the keys of earlier batches, which a slowly moving copy of the network made.

Shapes: B images of the global batch, C channels, H x W pixels, D embedding size, P projection size, K queue size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.contrastive.settings import MocoConfig
from energy_contrast.ess_control import ControlledMethod, new_controller
from energy_contrast.losses import info_nce
from energy_contrast.method import Batch, Passes, Progress, Requirements, StepOutput
from energy_contrast.networks.batch_norm import set_groups
from energy_contrast.networks.heads import new_head, unit
from energy_contrast.networks.slow_copy import follow, slow_copy
from energy_contrast.parallel import gather, own_share, world_size


class Moco(ControlledMethod):
    """MoCo v2.

    ``L = 1/B sum_i -log( exp(q_i k_i / tau) / (exp(q_i k_i / tau) + sum_j exp(q_i n_j / tau)) )`` with unit vectors
    ``q_i = g(f(x_i))`` of one view, ``k_i = g'(f'(x_i'))`` of the other without gradient, and the K keys n_j that were
    stored last. After the step, ``theta' <- m theta' + (1 - m) theta`` for the weights theta' of f' and g', and the
    batch's keys replace the oldest of the queue.

    Args:
        config: Settings.
        encoder: f, with ``embedding_size``.

    Metrics: ``info_nce`` always; while ``diagnosing`` also what ``diagnose`` returns, of queries and keys; while the
    temperature is controlled, what ``watch_negatives`` returns of the queued keys.

    Raises:
        ValueError: From ``forward``, if the batch cannot be cut into ``batch_norm_groups``.

    Source: MoCo (arXiv:1911.05722), algorithm 1 and section 3.3; MoCo v2 (arXiv:2003.04297), table 1; defaults of tau,
    K, m and groups from the authors' CIFAR-10 notebook.
    Departs from the paper: the key network is averaged and the queue written after the optimizer step instead of at the
    next forward pass, which gives the same numbers, since the first average is over equal weights. The number of batch
    norm groups is a setting instead of the number of GPUs, so that the result does not depend on the hardware; both
    networks use groups, as in the paper. The key network's running statistics are its own, not averaged, as in the
    released code. The symmetric loss, which the papers do not have, is the mean of both directions; the notebook takes
    their sum.
    """

    Config = MocoConfig
    not_in_chunks = ""
    config: MocoConfig
    paper = "Chen, Fan, Girshick & He, Improved Baselines with Momentum Contrastive Learning, 2020, arXiv:2003.04297"
    queue: Tensor
    pointer: Tensor

    def __init__(self, config: MocoConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.head = new_head(config, encoder, num_layers=config.projection_num_layers)
        set_groups(self, config.batch_norm_groups)
        self.key_encoder, self.key_head = slow_copy(self.encoder), slow_copy(self.head)
        self.register_buffer("queue", F.normalize(torch.randn(config.queue_size, config.projection_size), dim=1))
        self.register_buffer("pointer", torch.tensor(0))  # row of the oldest key
        self._new_keys: list[Tensor] = []
        self.controller = new_controller(config)

    @classmethod
    def requirements(cls, config: MocoConfig, batch_size: int) -> Requirements:
        """Return what all methods need, and the groups of batch norm."""
        return replace(super().requirements(config, batch_size), batch_norm_groups=config.batch_norm_groups)

    @classmethod
    def num_negatives(cls, config: MocoConfig, batch_size: int) -> int:
        """Return the number of keys in the queue."""
        return config.queue_size

    @classmethod
    def passes(cls, config: MocoConfig) -> Passes:
        """Return the passes of one query with gradient and one key without, for each direction."""
        directions = 2 if config.symmetric else 1
        return Passes(2 * directions, directions)

    def compile_parts(self, **options: Any) -> None:
        """Compile both encoders."""
        super().compile_parts(**options)
        self.key_encoder.compile(**options)

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; ``generator`` draws the order in which keys are normalised."""
        self._new_keys = []
        pairs = [(0, 1), (1, 0)] if self.config.symmetric else [(0, 1)]
        contrasts = [self._contrast(batch.views[i], batch.views[j], generator) for i, j in pairs]
        outputs, negatives = zip(*contrasts, strict=True)
        loss = torch.stack([output.loss for output in outputs]).mean()
        names = outputs[0].metrics
        metrics = {name: torch.stack([o.metrics[name] for o in outputs]).mean() for name in names}
        return StepOutput(loss, metrics | self.watch_negatives(*negatives))

    def _contrast(
        self, query_images: Tensor, key_images: Tensor, generator: torch.Generator
    ) -> tuple[StepOutput, Tensor]:
        """Score queries against their keys and the queue, and keep the keys for ``after_step``.

        Returns loss and metrics, and the similarities (B, K) with the queue.
        """
        # 1. q = g(f(x)), k = g'(f'(x')), unit vectors of the global batch
        query = gather(unit(self.head(self.encode(query_images))))  # (B, P)
        key = self._keys(key_images, generator)  # (B, P)
        self._new_keys.append(key)
        with torch.autocast(query.device.type, enabled=False):
            # 2. the key of the same image against those of earlier batches: the queue does not hold k yet
            positive, negatives = (query * key).sum(dim=1), query @ self.queue.T  # (B,), (B, K)
            # 3. the loss, averaged over the B queries
            tau, vectors = self.temperature, torch.cat([query, key])
            loss = info_nce(positive, negatives, temperature=tau)
            metrics = self.measure(loss, vectors, positive, negatives, temperature=tau)
            return StepOutput(loss, metrics), negatives

    @torch.no_grad()
    def _keys(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the keys (B, P) of all ranks' images, in the order of the images.

        With batch norm groups, the batch is shuffled first: otherwise a query and its key would have the same
        neighbours, and thus batch norm statistics that give the key away.
        """
        if self.config.batch_norm_groups == 1:
            return gather(unit(self.key_head(self.encode(images, self.key_encoder))))
        order = torch.randperm(world_size() * len(images), generator=generator, device=generator.device)
        shuffled = own_share(gather(images)[order.to(images.device)])
        key = gather(unit(self.key_head(self.encode(shuffled, self.key_encoder))))
        return key[order.argsort().to(images.device)]

    @torch.no_grad()
    def after_step(self, progress: Progress) -> None:
        """Move the key network and the temperature, and store the step's keys."""
        super().after_step(progress)
        follow(self.key_encoder, self.encoder, momentum=self.config.momentum)
        follow(self.key_head, self.head, momentum=self.config.momentum)
        for key in self._new_keys:
            self._store(key)
        self._new_keys = []

    def _store(self, key: Tensor) -> None:
        """Replace the oldest rows of the queue; if there are more keys than rows, the last keys stay."""
        size = len(self.queue)
        rows = (self.pointer + torch.arange(len(key), device=key.device)) % size
        self.queue[rows[-size:]] = key[-size:].to(self.queue.dtype)
        self.pointer.copy_((self.pointer + len(key)) % size)
