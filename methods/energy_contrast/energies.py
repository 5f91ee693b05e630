"""Energies of image pairs and of single images: low where two images look alike, or where an image looks likely.

Shapes: N images, M references, P projection size. Pure functions; no communication.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def pair_energy(z: Tensor, z_prime: Tensor, *, temperature: float) -> Tensor:
    """Return the energy of every pair of a projection and a reference.

    ``E(v, v') = || z/|z| - z'/|z'| ||^2 / tau``, so that ``exp(-E)`` is proportional to the joint density of two
    views of one image. On unit vectors ``E = (2 - 2 cos) / tau``: as logits, energies at tau are cosine similarities
    at tau / 2.

    Args:
        z: (N, P) projections, of any length.
        z_prime: (M, P) projections of the references, of any length.
        temperature: tau, divides squared distances.

    Returns:
        (N, M) energies in [0, 4 / tau].

    Raises:
        ValueError: If the shapes do not fit.

    >>> pair_energy(torch.eye(2), torch.tensor([[3.0, 0.0]]), temperature=0.5)
    tensor([[0.],
            [4.]])

    Source: EBCLR (arXiv:2202.04933), eq. 8.
    """
    if z.dim() != 2 or z_prime.dim() != 2 or z.shape[1] != z_prime.shape[1]:
        shapes = f"{tuple(z.shape)} and {tuple(z_prime.shape)}"
        raise ValueError(f"pair_energy: needs projections of one size, got {shapes}; use (N, P) and (M, P)")
    cosine = F.normalize(z, dim=1) @ F.normalize(z_prime, dim=1).T  # (N, M)
    return (2 - 2 * cosine) / temperature


def marginal_energy(z: Tensor, references: Tensor, *, temperature: float, exclude_self: bool = False) -> Tensor:
    """Return the energy of single images: low for those that lie close to some reference.

    ``E(v) = -log sum_m exp(-E(v, v'_m))``, up to a constant the negative logarithm of the marginal density, whose
    integral over second views is replaced by the references.

    Args:
        z: (N, P) projections, of any length.
        references: (M, P) projections of the references, of any length.
        temperature: tau, divides squared distances.
        exclude_self: Leave reference n out of the sum of image n; M must then be at least N, and at least 2.

    Returns:
        (N,) energies, at least -log M.

    Raises:
        ValueError: If the shapes do not fit.

    >>> marginal_energy(torch.ones(1, 2), torch.ones(8, 2), temperature=0.1).exp()
    tensor([0.1250])

    Source: EBCLR (arXiv:2202.04933), eq. 20; references as in eq. 17, with ``exclude_self`` as in eq. 15.
    """
    energy = pair_energy(z, references, temperature=temperature)  # (N, M)
    if exclude_self:
        num_images, num_references = energy.shape
        if num_references < max(2, num_images):
            raise ValueError(
                f"marginal_energy: each image must be among the references, got {num_references} for {num_images} "
                "images; use at least as many, and at least 2"
            )
        own = torch.eye(num_images, num_references, dtype=torch.bool, device=energy.device)
        energy = energy.masked_fill(own, torch.inf)
    return -torch.logsumexp(-energy, dim=1)


def classifier_energy(logits: Tensor) -> Tensor:
    """Return the energy of images under a classifier: low where it gives some class a large logit.

    ``E(x) = -log sum_k exp(f_k(x))``, so that ``exp(-E)`` is proportional to the density of images whose joint density
    with labels is ``exp(f_y(x)) / Z``, while ``p(y|x)`` stays the classifier's softmax.

    Args:
        logits: (N, K) f.

    Returns:
        (N,) energies in nats.

    Raises:
        ValueError: If the shape does not fit.

    >>> classifier_energy(torch.zeros(1, 4)).exp()
    tensor([0.2500])

    Source: JEM (arXiv:1912.03263), eq. 7.
    """
    if logits.dim() != 2 or logits.shape[1] == 0:
        raise ValueError(f"classifier_energy: needs logits of classes, got {tuple(logits.shape)}; use (N, K), K >= 1")
    return -torch.logsumexp(logits, dim=1)
