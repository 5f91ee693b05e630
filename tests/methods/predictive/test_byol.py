"""BYOL against the paper's algorithm, written out with torch's own layers."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from energy_contrast.method import Batch, Progress
from energy_contrast.networks import build_encoder
from energy_contrast.predictive.byol import Byol, ByolConfig, rising_momentum

SIZE = 8
NUM_STEPS = 5


def build(**settings: object) -> Byol:
    torch.manual_seed(0)
    config = ByolConfig(**{"projection_size": 6, "projection_hidden_size": 10, "momentum": 0.8, **settings})
    return Byol(config, build_encoder("small", in_channels=1, width=4)).double()


def make_batch(step: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(step)
    views = torch.randn(2, SIZE, 1, 8, 8, generator=generator, dtype=torch.float64)
    return Batch(views, torch.full((SIZE,), -1), torch.arange(SIZE), views.new_empty(0, 1, 8, 8))


def mlp(in_size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_size, 10, bias=False), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 6))


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_five_steps_are_the_papers_algorithm(schedule: str) -> None:
    method = build(momentum_schedule=schedule)
    online = nn.Sequential(build_encoder("small", in_channels=1, width=4), mlp(16)).double()
    predictor = mlp(6).double()
    learning, theirs = (
        [w for w in method.parameters() if w.requires_grad],
        [*online.parameters(), *predictor.parameters()],
    )
    for mine, other in zip(learning, theirs, strict=True):
        other.data.copy_(mine.data)
    target = copy.deepcopy(online)
    optimizers = [torch.optim.SGD(weights, lr=0.1) for weights in (learning, theirs)]
    for k in range(NUM_STEPS):
        v, v_prime = make_batch(k).views
        q, q_prime = (F.normalize(predictor(online(x))) for x in (v, v_prime))
        with torch.no_grad():
            z, z_prime = (F.normalize(target(x)) for x in (v, v_prime))
        expected = ((q - z_prime).square().sum(dim=1) + (q_prime - z).square().sum(dim=1)).mean()
        output = method(make_batch(k), torch.Generator())
        torch.testing.assert_close(output.loss, expected, rtol=1e-9, atol=1e-12)
        for optimizer, loss in zip(optimizers, (output.loss, expected), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        method.after_step(Progress(k + 1, NUM_STEPS, 0))
        m = 0.8 if schedule == "constant" else 1 - 0.2 * (math.cos(math.pi * k / NUM_STEPS) + 1) / 2
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.copy_(m * slow + (1 - m) * fast)
    torch.testing.assert_close(learning, theirs, rtol=1e-7, atol=1e-9)
    slow = [*method.target_encoder.parameters(), *method.target_head.parameters()]
    torch.testing.assert_close(slow, list(target.parameters()), rtol=1e-7, atol=1e-9)
    buffers = dict(method.target_encoder.named_buffers())
    torch.testing.assert_close(buffers, dict(target[0].named_buffers()), rtol=1e-7, atol=1e-9)


def test_the_target_network_starts_equal_and_learns_by_nothing_but_its_average() -> None:
    method = build()
    torch.testing.assert_close(method.target_encoder.state_dict(), method.encoder.state_dict(), rtol=0, atol=0)
    method(make_batch(), torch.Generator()).loss.backward()
    frozen = [*method.target_encoder.parameters(), *method.target_head.parameters()]
    assert all(not weight.requires_grad and weight.grad is None for weight in frozen)


def test_momentum_rises_to_1() -> None:
    values = [rising_momentum(0.9, step=k, num_steps=100) for k in range(101)]
    assert values[0] == pytest.approx(0.9)
    assert values[-1] == 1
    assert values == sorted(values)
