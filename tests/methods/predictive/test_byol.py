"""BYOL against the paper's algorithm, written out with torch's own layers."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.method import Batch
from energy_contrast.predictive.byol import Byol, ByolConfig

from ..conftest import built, copy_weights, small_encoder, train_beside

SIZE = 8
NUM_STEPS = 5


def build(**settings: object) -> Byol:
    return built(Byol, **{"projection_size": 6, "projection_hidden_size": 10, "momentum": 0.8, **settings})


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

    def loss_of(batch: Batch) -> Tensor:
        v, v_prime = batch.views
        p, p_prime = (q(g(f(x))) for x in (v, v_prime))
        with torch.no_grad():
            z, z_prime = (slow_g(slow_f(x)) for x in (v, v_prime))
        return released_distance(p, z_prime) / 2 + released_distance(p_prime, z) / 2

    for _ in train_beside(method, loss_of, nn.ModuleList((f, g, q)), NUM_STEPS, SIZE):
        with torch.no_grad():
            for slow, fast in ((slow_f, f), (slow_g, g)):
                for averaged, weight in zip(slow.parameters(), fast.parameters(), strict=True):
                    averaged.copy_(0.8 * averaged + 0.2 * weight)
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
    online = nn.Sequential(small_encoder(), mlp(16)).double()
    predictor = mlp(6).double()
    theirs = nn.ModuleList((online, predictor))
    copy_weights(method, theirs)
    target = copy.deepcopy(online)

    def loss_of(batch: Batch) -> Tensor:
        v, v_prime = batch.views
        q, q_prime = (F.normalize(predictor(online(x))) for x in (v, v_prime))
        with torch.no_grad():
            z, z_prime = (F.normalize(target(x)) for x in (v, v_prime))
        return ((q - z_prime).square().sum(dim=1) + (q_prime - z).square().sum(dim=1)).mean()

    for k, _ in enumerate(train_beside(method, loss_of, theirs, NUM_STEPS, SIZE)):
        m = 0.8 if schedule == "constant" else 1 - 0.2 * (math.cos(math.pi * k / NUM_STEPS) + 1) / 2
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.copy_(m * slow + (1 - m) * fast)
    slow = [*method.target_encoder.parameters(), *method.target_head.parameters()]
    torch.testing.assert_close(slow, list(target.parameters()), rtol=1e-7, atol=1e-9)
    buffers = dict(method.target_encoder.named_buffers())
    torch.testing.assert_close(buffers, dict(target[0].named_buffers()), rtol=1e-7, atol=1e-9)
