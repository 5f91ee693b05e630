"""What tests of several methods build, draw and compare alike."""

from collections.abc import Callable, Iterator
from typing import Any

import small_methods
import torch
from torch import Tensor, nn

from energy_contrast.method import Batch, Method, Progress, StepOutput

DIAGNOSTICS = {"alignment", "effective_rank", "embedding_spread", "ess", "ess_with_positive", "log_k_saturation"}
DIAGNOSTICS |= {"uniformity"}
"""Metrics that a contrastive method adds while ``diagnosing``."""


def small_encoder(**settings: Any) -> nn.Module:
    """Return a small encoder of grey images whose weights are always the same."""
    torch.manual_seed(0)
    return small_methods.small_encoder(**settings)


def built(kind: type[Method], encoder: nn.Module | None = None, /, *classes: int, **settings: Any) -> Any:
    """Return a method in float64 on the small encoder or another one; its weights are always the same."""
    encoder = encoder or small_encoder()
    return kind(kind.Config(**settings), encoder, *classes).double()


def draw(count: int, generator: torch.Generator) -> Tensor:
    """Return images of 8 x 8 pixels, as a method's start draws them."""
    return torch.randn(count, 1, 8, 8, generator=generator, dtype=torch.float64)


def gradients(loss: Tensor, method: nn.Module) -> list[Tensor]:
    """Return the gradient of each weight that learns."""
    return list(torch.autograd.grad(loss, [p for p in method.parameters() if p.requires_grad], retain_graph=True))


def assert_same_loss(found: Tensor, expected: Tensor, method: nn.Module, rtol: float = 1e-7) -> None:
    """Compare two losses, and their gradients by the weights of a method."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(gradients(found, method), gradients(expected, method), rtol=rtol, atol=1e-9)


def assert_is_its_equation(
    network: nn.Module, slow: Callable[[nn.Module, Tensor, float], Tensor], slope: float
) -> None:
    """Compare an encoder, and its gradient by the images, with its equation, given its weights and ReLU's slope."""
    for name, value in network.double().state_dict().items():
        if "running" in name or "bias" in name or ("bn" in name and "weight" in name):
            value.uniform_(0.5, 1.5)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(network.eval()(images), slow(network, images, slope))
    gradient, expected = (
        torch.autograd.grad(embed(moving).square().sum(), moving)[0]
        for embed in (network, lambda x: slow(network, x, slope))
        for moving in [images.clone().requires_grad_()]
    )
    torch.testing.assert_close(gradient, expected)
    network.train()(images).sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in network.parameters())


def copy_weights(method: nn.Module, other: nn.Module) -> None:
    """Give other networks the weights of a method that learn."""
    learning = [weight for weight in method.parameters() if weight.requires_grad]
    for mine, theirs in zip(learning, other.parameters(), strict=True):
        theirs.data.copy_(mine.data)


def train_beside(
    method: Method, loss_of: Callable[[Batch], Tensor], theirs: nn.Module, num_steps: int, size: int
) -> Iterator[StepOutput]:
    """Train a method, and other networks by a loss written out; yield after each step, whose losses are the same.

    In the end, so are the weights that learn.
    """
    learning = [weight for weight in method.parameters() if weight.requires_grad]
    optimizers = [torch.optim.SGD(weights, lr=0.1) for weights in (learning, theirs.parameters())]
    for step in range(num_steps):
        batch = random_batch(size, step)
        output, expected = method(batch, torch.Generator()), loss_of(batch)
        torch.testing.assert_close(output.loss, expected, rtol=1e-9, atol=1e-12)
        for optimizer, loss in zip(optimizers, (output.loss, expected), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        method.after_step(Progress(step + 1, num_steps, 0))
        yield output
    torch.testing.assert_close(learning, list(theirs.parameters()), rtol=1e-7, atol=1e-9)


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
