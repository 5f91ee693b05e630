"""The energy that moves Langevin chains: of single images, by the whole network or through its first layer only.

Shapes: b chains, M references, C channels, H x W pixels, D embedding size, P projection size, w x H' x W' output of the
first layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from energy_contrast.energies import marginal_energy
from energy_contrast.networks.heads import at_least_float32
from energy_contrast.networks.resnet import ResNet
from energy_contrast.samplers import compiled

EmbeddingEnergy = Callable[[Tensor, Any], Tensor]
"""``energy(embedding, references)`` returns the energies (b,) of embeddings (b, D), in float32 or wider."""


class ChainEnergy:
    """The energy of images, in a form that a sampler takes: ``chain_energy(position, context) -> (b,)``.

    With ``num_inner_steps`` 0 it is ``E(f(x))``. Otherwise it is ``<p, f_0(x)>``, where f_0 is the encoder's first
    layer with its activation and ``p = dE/df_0``, taken at the position of every ``num_inner_steps``-th step: in
    between, a step costs a pass through f_0 alone.

    Args:
        encoder: f, images to embeddings; with ``num_inner_steps`` a ``ResNet``, whose ``stem`` is f_0.
        energy: E, of embeddings and of what ``context`` was given, such as ``marginal`` of a head.
        num_inner_steps: Steps for each full gradient; 0 means full gradients only.
        bfloat16: Run the networks under autocast.

    Raises:
        ValueError: If f_0 is needed and the encoder has none.

    Source: JEM++ (arXiv:2109.09032): Proximal-YOPO-SGLD.
    """

    def __init__(
        self, encoder: nn.Module, energy: EmbeddingEnergy, *, num_inner_steps: int = 0, bfloat16: bool = False
    ) -> None:
        if num_inner_steps and not isinstance(encoder, ResNet):
            raise ValueError(
                f"chain_gradient: first-layer needs an encoder with stem and trunk, got {type(encoder).__name__}; "
                "use a ResNet or full"
            )
        self._encoder, self._energy = encoder, energy
        self._num_inner_steps, self._bfloat16 = num_inner_steps, bfloat16
        self._take_slope = self._slope

    def compile(self, **options: Any) -> None:
        """Compile the pass that takes p, if there is one; ``options`` are those of ``torch.compile``."""
        if self._num_inner_steps:
            self._take_slope = compiled(self._slope, **options)

    def __call__(self, position: Tensor, context: Any) -> Tensor:
        """Return the energies (b,), up to a constant where they are those of the first layer."""
        if not self._num_inner_steps:
            return self.whole(position, context)
        with self._autocast(position.device):
            activated = cast(ResNet, self._encoder).stem(position)
        energies: Tensor = (activated * context).flatten(1).sum(dim=1, dtype=position.dtype)
        return energies

    def whole(self, position: Tensor, references: Any) -> Tensor:
        """Return the energies (b,) of images, by all layers."""
        with self._autocast(position.device):
            energies: Tensor = self._energy(self._encoder(position), references)
        return energies

    def context(self, references: Any) -> Callable[[int, Tensor], Any]:
        """Return ``context(step, position)``: the references, or p (b, w, H', W') of every n-th position."""
        if not self._num_inner_steps:
            return lambda step, position: references
        slope = references

        def held_slope(step: int, position: Tensor) -> Any:
            nonlocal slope
            if step % self._num_inner_steps == 0:
                slope = self._take_slope(position, references)
            return slope

        return held_slope

    @torch.enable_grad()
    def _slope(self, position: Tensor, references: Any) -> Tensor:
        encoder = cast(ResNet, self._encoder)
        with self._autocast(position.device):
            activated = encoder.stem(position).detach().requires_grad_()
            total = self._energy(encoder.trunk(activated), references).sum()
        with torch.autocast(position.device.type, enabled=False):  # as where samplers take a gradient
            (slope,) = torch.autograd.grad(total, activated)
        return slope

    def _autocast(self, device: torch.device) -> torch.autocast:
        if not self._bfloat16:
            return torch.autocast(device.type, enabled=False)
        # torch's cache of cast weights does not ask for their type: it would return the float16 ones of the caller
        other = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) != torch.bfloat16
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False if other else None)


def marginal(head: nn.Module, *, temperature: float) -> EmbeddingEnergy:
    """Return the energy of embeddings by how close their projections are to those of references.

    ``E(h) = -log sum_m exp(-|z - z'_m|^2 / tau)`` with ``z = g(h) / |g(h)|`` and unit z'.

    Args:
        head: g.
        temperature: tau, divides squared distances.

    Returns:
        ``energy(embedding (b, D), references (M, P)) -> (b,)``; the comparison is in float32 under autocast too.

    >>> marginal(nn.Identity(), temperature=0.1)(torch.ones(1, 2), torch.ones(8, 2)).exp()
    tensor([0.1250])

    Source: EBCLR (arXiv:2202.04933), eq. 20.
    """

    def energy(embedding: Tensor, references: Tensor) -> Tensor:
        projection = at_least_float32(head(embedding))
        with torch.autocast(projection.device.type, enabled=False):
            return marginal_energy(projection, references, temperature=temperature)

    return energy
