"""Learning rates against closed forms and torch's own schedulers."""

import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR

from ebclab.config.sections import OptimizerConfig, TrainingConfig
from ebclab.optimization.schedules import (
    learning_rate_at,
    learning_rates,
    peak_learning_rate,
    set_learning_rate,
    weight_decays,
)


def ours(num_steps: int, **choices: object) -> list[float]:
    settings = {"peak": 0.6, "warmup_steps": 0, "schedule": "cosine", "final_rate": 0.0, **choices}
    return [learning_rate_at(step, num_steps=num_steps, **settings) for step in range(num_steps)]


def torchs(optimizer: torch.optim.Optimizer, scheduler: LRScheduler, num_steps: int) -> list[float]:
    rates = []
    for _ in range(num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.fixture
def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.6)


@pytest.mark.parametrize("final_rate", [0.0, 0.1])
def test_cosine_equals_torchs_cosine_annealing(optimizer: torch.optim.Optimizer, final_rate: float):
    scheduler = CosineAnnealingLR(optimizer, T_max=50, eta_min=0.6 * final_rate)
    assert ours(50, final_rate=final_rate) == pytest.approx(torchs(optimizer, scheduler, 50), rel=1e-9)


@pytest.mark.parametrize("final_rate", [0.0, 0.1])
def test_linear_equals_torchs_linear(optimizer: torch.optim.Optimizer, final_rate: float):
    scheduler = LinearLR(optimizer, start_factor=1.0, end_factor=final_rate, total_iters=50)
    expected = torchs(optimizer, scheduler, 50)
    assert ours(50, schedule="linear", final_rate=final_rate) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("num_steps", "shares", "steps"),
    [(50, (0.6, 0.8), [30, 40]), (10, (0.07, 0.7, 0.9), [1, 7, 9]), (7, (), [])],  # 0.7 * 10 is above 7
)
def test_step_equals_torchs_milestones(optimizer, num_steps, shares, steps):
    expected = torchs(optimizer, MultiStepLR(optimizer, steps, gamma=0.1), num_steps)
    found = ours(num_steps, schedule="step", milestones=shares, step_factor=0.1)
    assert found == pytest.approx(expected, rel=1e-9)


def test_linear_starts_after_the_warm_up_and_milestones_count_from_the_start():
    assert ours(6, warmup_steps=2, schedule="linear") == pytest.approx([0.3, 0.6, 0.6, 0.45, 0.3, 0.15])
    found = ours(6, warmup_steps=3, schedule="step", milestones=(0.3, 0.7), step_factor=0.5)
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.3, 0.15, 0.15])


@pytest.mark.parametrize("schedule", ["cosine", "linear", "step"])
def test_an_extension_has_the_schedule_of_the_new_total(schedule: str):
    optimizer = OptimizerConfig(learning_rate=0.6, schedule=schedule, warmup_epochs=0.4)
    first, second, third = (learning_rates(optimizer, TrainingConfig(epochs=epochs), 5) for epochs in (2, 3, 6))
    extended = learning_rates(optimizer, TrainingConfig(epochs=6, extended=(2, 3)), 5)
    expected = [*map(first, range(10)), *map(second, range(10, 15)), *map(third, range(15, 30))]
    assert [extended(step) for step in range(30)] == expected


def test_cosine_after_warm_up_has_the_values_of_its_closed_form():
    # the cosine part has 4 steps at t = 0, 1/4, 1/2, 3/4; (1 + cos(pi t)) / 2 = 1, (2 + sqrt 2)/4, 1/2, (2 - sqrt 2)/4
    root = 2**0.5
    expected = [0.3, 0.6, 0.6, 0.6 * (2 + root) / 4, 0.3, 0.6 * (2 - root) / 4]
    assert ours(6, warmup_steps=2) == pytest.approx(expected)


def test_a_warm_up_longer_than_the_run_is_cut_short():
    assert ours(3, warmup_steps=6) == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_the_run_is_refused(step: int):
    with pytest.raises(ValueError, match=rf"step: must be in \[0, 10\), got {step}"):
        learning_rate_at(step, peak=0.6, num_steps=10, warmup_steps=0, schedule="constant", final_rate=0.0)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [("none", 0.3), ("linear", 0.6), ("sqrt", 0.3 * 2**0.5)],  # twice the reference batch of 256
)
def test_the_peak_scales_with_the_batch_size(scaling: str, expected: float):
    config = OptimizerConfig(learning_rate=0.3, scaling=scaling)
    assert peak_learning_rate(config, 512) == pytest.approx(expected)
    assert peak_learning_rate(config, 256) == pytest.approx(0.3)


def test_set_learning_rate_reaches_every_group():
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([{"params": [layer.weight]}, {"params": [layer.bias], "lr": 0.5}], lr=0.1)
    set_learning_rate(optimizer, 0.02)
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, 0.02]


def test_weight_decay_moves_by_a_half_cosine_over_each_total_of_steps():
    root = 2**0.5  # (1 - cos(pi t)) / 2 at t = 0, 1/4, 1/2, 3/4
    shares = [0, (2 - root) / 4, 1 / 2, (2 + root) / 4]
    optimizer = OptimizerConfig(weight_decay=0.04, weight_decay_end=0.4)
    decay = weight_decays(optimizer, TrainingConfig(epochs=2), 2)
    assert [decay(step) for step in range(4)] == pytest.approx([0.04 + 0.36 * share for share in shares])
    extended = weight_decays(optimizer, TrainingConfig(epochs=4, extended=(2,)), 2)
    later = [0.22, *(0.04 + 0.36 * (1 - math.cos(math.pi * step / 8)) / 2 for step in (5, 6, 7))]
    assert [extended(step) for step in range(8)] == pytest.approx([decay(step) for step in range(4)] + later)
    assert weight_decays(OptimizerConfig(), TrainingConfig(), 2) is None
    assert weight_decays(OptimizerConfig(weight_decay_end=0.0), TrainingConfig(epochs=1), 2)(1) == 5e-4 / 2
