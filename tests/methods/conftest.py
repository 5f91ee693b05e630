"""What tests of several methods expect alike."""

import torch
from torch import Tensor

from energy_contrast.method import Batch, Method, Progress

DIAGNOSTICS = {
    "alignment",
    "effective_rank",
    "embedding_spread",
    "ess",
    "ess_with_positive",
    "log_k_saturation",
    "uniformity",
}
"""Metrics that a contrastive method adds while ``diagnosing``."""


def unlabelled(views: Tensor) -> Batch:
    """Return a batch of views of the first images, which have no labels, without proposals."""
    size = views.shape[1]
    return Batch(views, torch.full((size,), -1), torch.arange(size), views.new_empty(0, *views.shape[2:]))


def random_batch(size: int, seed: int = 1, num_views: int = 2, dtype: torch.dtype = torch.float64) -> Batch:
    """Return views of 8 x 8 pixels, all drawn apart."""
    generator = torch.Generator().manual_seed(seed)
    return unlabelled(torch.randn(num_views, size, 1, 8, 8, generator=generator, dtype=dtype))


def train_on_two_clusters(method: Method, num_steps: int) -> list[dict[str, float]]:
    """Return the metrics of every step on noisy views of images from two clusters."""
    generator, dtype = torch.Generator().manual_seed(0), next(method.parameters()).dtype
    centres = torch.randn(2, 1, 8, 8, generator=generator, dtype=dtype)
    optimizer = torch.optim.Adam([weight for weight in method.parameters() if weight.requires_grad], lr=3e-3)
    history = []
    for step in range(num_steps):
        noise = torch.randn(3, 16, 1, 8, 8, generator=generator, dtype=dtype)
        output = method(unlabelled(centres[torch.arange(16) % 2] + noise[0] + 0.2 * noise[1:]), generator)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        method.after_step(Progress(step + 1, num_steps, 0))
        history.append({name: value.item() for name, value in output.metrics.items()})
    return history
