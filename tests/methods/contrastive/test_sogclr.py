"""SogCLR against a loop of its estimator over several steps, and against DCL where it forgets all."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from energy_contrast.contrastive.dcl import Dcl
from energy_contrast.contrastive.sogclr import Sogclr
from energy_contrast.losses import info_nce, pair_similarities
from energy_contrast.method import Batch, Method, Progress

from ..conftest import built, gradients, random_batch

SIZE, TAU = 5, 0.3


def build(method: type[Method] = Sogclr, **settings: object) -> Method:
    return built(method, temperature=TAU, **settings)


def make_batch(step: int = 0) -> Batch:
    """Return two views of five of eight images."""
    rows = torch.randperm(8, generator=torch.Generator().manual_seed(step))[:SIZE]
    return replace(random_batch(SIZE, step), index=rows)


def slow_estimator(
    projection: Tensor, rows: list[int], means: dict[int, float], gamma: float
) -> tuple[Tensor, dict[int, float]]:
    """Return the loss whose gradient is the paper's estimator, and the means after it, an anchor at a time."""
    z = [row / row.norm() for row in projection]
    total, moved = torch.zeros((), dtype=torch.float64), dict.fromkeys(rows, 0.0)
    for a in range(2 * SIZE):
        image, others = rows[a % SIZE], [k for k in range(2 * SIZE) if k % SIZE != a % SIZE]
        g = sum(math.exp((z[a] @ z[k]).item() / TAU) for k in others) / len(others)
        u = (1 - gamma) * means[image] + gamma * g if image in means else g
        moved[image] += u / 2
        total = total - z[a] @ z[(a + SIZE) % (2 * SIZE)]
        for k in others:
            total = total + math.exp((z[a] @ z[k]).item() / TAU) / u * (z[a] @ z[k]) / len(others)
    return total / (2 * SIZE), means | moved


@pytest.mark.parametrize("gamma", [0.9, 0.2])
def test_steps_follow_the_papers_estimator_and_its_running_means(gamma: float) -> None:
    method, means = build(update_rate=gamma), {}
    optimizer = torch.optim.SGD(method.parameters(), lr=0.5)
    for step in range(4):
        batch = make_batch(step)
        output = method(batch, torch.Generator())
        projection = method.head(method.encoder(batch.views.flatten(0, 1)))
        expected, means = slow_estimator(projection, batch.index.tolist(), means, gamma)
        torch.testing.assert_close(output.loss, expected, rtol=1e-12, atol=1e-12)
        wanted = gradients(expected, method)
        optimizer.zero_grad()
        output.loss.backward()
        torch.testing.assert_close([p.grad for p in method.parameters()], wanted, rtol=1e-9, atol=1e-12)
        optimizer.step()
        method.after_step(Progress(step + 1, 4, 0))
        assert {row: method.means.means[row].item() for row in means} == pytest.approx(means, rel=1e-12)
    assert len(means) == 8  # all images were met, some of them more than once


def test_without_a_memory_the_gradient_is_tau_times_that_of_dcl() -> None:
    sogclr, dcl, batch = build(update_rate=1.0), build(Dcl), make_batch()
    sogclr(make_batch(1), torch.Generator())
    sogclr.after_step(Progress(1, 2, 0))
    found = gradients(sogclr(batch, torch.Generator()).loss, sogclr)
    expected = [TAU * gradient for gradient in gradients(dcl(batch, torch.Generator()).loss, dcl)]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_what_is_read_is_simclrs_loss_and_the_estimate_of_the_global_one() -> None:
    method, batch = build(update_rate=0.4), make_batch()
    with torch.no_grad():
        positive, negatives = pair_similarities(*method.head(method.encoder(batch.views.flatten(0, 1))).chunk(2))
    metrics = method(batch, torch.Generator()).metrics
    torch.testing.assert_close(metrics["info_nce"], info_nce(positive, negatives, temperature=TAU))
    means = (negatives / TAU).exp().mean(dim=1)  # of the first batch, whatever the rate
    torch.testing.assert_close(metrics["global_loss"], (TAU * means.log() - positive).mean())


@pytest.mark.parametrize("index", [torch.full((SIZE,), -1), torch.zeros(0), torch.arange(SIZE - 1), torch.rand(SIZE)])
def test_a_batch_that_does_not_know_its_rows_is_one_sentence(index: Tensor) -> None:
    with pytest.raises(ValueError, match="index: sogclr keeps a number for each training image and must know which"):
        build()(replace(make_batch(), index=index), torch.Generator())


def test_in_float32_a_low_temperature_overflows_neither_the_means_nor_the_weights() -> None:
    """At tau = 0.01 a cosine of 0.9 has exp(s / tau) = exp(90), above the largest float32, exp(88.7)."""
    tau = 0.01
    sogclr, dcl = built(Sogclr, temperature=tau, update_rate=1.0).float(), built(Dcl, temperature=tau)
    images = torch.randn(SIZE, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    views = images[:1] + 0.03 * torch.stack([images, images.flip(0)])  # of images that hardly differ
    batch = replace(make_batch(), views=views)
    with torch.no_grad():
        _, negatives = pair_similarities(*sogclr.head(sogclr.encoder(views.flatten(0, 1))).chunk(2))
    assert (negatives / tau).exp().isinf().any()
    found = gradients(sogclr(batch, torch.Generator()).loss, sogclr)
    wanted = gradients(dcl(replace(batch, views=views.double()), torch.Generator()).loss, dcl)
    for gradient, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient.double(), tau * expected, rtol=1e-2, atol=1e-3 * tau * expected.abs().max())


def test_a_known_number_of_images_makes_room_for_all_of_them_in_the_first_step() -> None:
    for num_images, room in ((50, 50), (None, int(make_batch().index.max()) + 1)):
        method = build()
        method.num_images = num_images
        method(make_batch(), torch.Generator())
        method.after_step(Progress(1, 1, 0))
        assert len(method.means.means) == room
