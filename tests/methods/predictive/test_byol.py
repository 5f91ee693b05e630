"""BYOL against the paper's algorithm, written out with torch's own layers."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.method import Batch, Progress
from energy_contrast.networks import build_encoder
from energy_contrast.predictive.byol import Byol, ByolConfig, rising_momentum

from ..conftest import random_batch

SIZE = 8
NUM_STEPS = 5


def build(**settings: object) -> Byol:
    torch.manual_seed(0)
    config = ByolConfig(**{"projection_size": 6, "projection_hidden_size": 10, "momentum": 0.8, **settings})
    return Byol(config, build_encoder("small", in_channels=1, width=4)).double()


def make_batch(step: int = 0) -> Batch:
    return random_batch(SIZE, step)


def mlp(in_size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_size, 10, bias=False), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 6))


def released_distance(prediction: Tensor, target: Tensor) -> Tensor:
    """EBCLR's released D: the mean over images of 2 - 2 cos, one image after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for p, z in zip(prediction, target, strict=True):
        total = total + 2 - 2 * (p @ z) / (p.square().sum().sqrt() * z.square().sum().sqrt())
    return total / len(prediction)


def test_five_steps_of_the_released_baseline() -> None:
    """D / 2 + D / 2 of both directions, and a target network with weights of its own at the start."""
    method = build(directions="mean", target_start="own", momentum_schedule="constant")
    networks = [method.encoder, method.head, method.predictor, method.target_encoder, method.target_head]
    f, g, q, slow_f, slow_g = (copy.deepcopy(network) for network in networks)
    assert not torch.equal(slow_f.conv1.weight, f.conv1.weight)
    learning = [w for w in method.parameters() if w.requires_grad]
    theirs = [w for network in (f, g, q) for w in network.parameters()]
    optimizers = [torch.optim.SGD(weights, lr=0.1) for weights in (learning, theirs)]
    for k in range(NUM_STEPS):
        v, v_prime = make_batch(k).views
        p, p_prime = (q(g(f(x))) for x in (v, v_prime))
        with torch.no_grad():
            z, z_prime = (slow_g(slow_f(x)) for x in (v, v_prime))
        expected = released_distance(p, z_prime) / 2 + released_distance(p_prime, z) / 2
        output = method(make_batch(k), torch.Generator())
        torch.testing.assert_close(output.loss, expected, rtol=1e-9, atol=1e-12)
        for optimizer, loss in zip(optimizers, (output.loss, expected), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        method.after_step(Progress(k + 1, NUM_STEPS, 0))
        with torch.no_grad():
            for slow, fast in ((slow_f, f), (slow_g, g)):
                for averaged, weight in zip(slow.parameters(), fast.parameters(), strict=True):
                    averaged.copy_(0.8 * averaged + 0.2 * weight)
    torch.testing.assert_close(learning, theirs, rtol=1e-7, atol=1e-9)
    mine = [*method.target_encoder.parameters(), *method.target_head.parameters()]
    torch.testing.assert_close(mine, [*slow_f.parameters(), *slow_g.parameters()], rtol=1e-7, atol=1e-9)


def test_a_target_of_its_own_has_every_weight_drawn_anew_and_moves_no_other() -> None:
    own, copied = build(target_start="own"), build()
    for name in ("encoder", "head", "predictor"):
        torch.testing.assert_close(getattr(own, name).state_dict(), getattr(copied, name).state_dict(), rtol=0, atol=0)
    for target, online in ((own.target_encoder, own.encoder), (own.target_head, own.head)):
        for (name, slow), fast in zip(target.named_parameters(), online.parameters(), strict=True):
            drawn = fast.unique().numel() > 1  # scales and shifts of batch norm begin as 1 and 0
            assert torch.equal(slow, fast) != drawn, name
            if fast.ndim > 1:  # as many numbers as that put the spread of one draw near that of another
                assert slow.std().item() == pytest.approx(fast.std().item(), rel=0.5), name
            assert not slow.requires_grad
    again = build(target_start="own")
    torch.testing.assert_close(again.state_dict(), own.state_dict(), rtol=0, atol=0)


def test_a_target_of_its_own_needs_an_encoder_that_can_draw_its_weights() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    encoder.embedding_size = 4
    Byol(ByolConfig(), encoder)
    with pytest.raises(ValueError, match="target_start: own needs an encoder of energy_contrast, got Sequential"):
        Byol(ByolConfig(target_start="own"), encoder)


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
