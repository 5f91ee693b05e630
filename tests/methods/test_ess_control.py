"""The controller meets its target, and the printed rule runs away from it."""

import math
from itertools import pairwise

import pytest
import torch

from energy_contrast.diagnostics import effective_sample_size
from energy_contrast.ess_control import MAX_BETA, MIN_BETA, EssController, scheduled_target

SIMILARITIES = torch.rand(64, 30, generator=torch.Generator().manual_seed(0)) * 2 - 1


def run(temperature: float, rule: str, num_steps: int, target: float = 0.5) -> list[float]:
    """Return the ESS before each of ``num_steps`` updates, and after the last."""
    controller = EssController(temperature=temperature, target=target, gain=0.01, rule=rule)
    values = []
    for _ in range(num_steps):
        controller.observe(SIMILARITIES)
        values.append(controller.ess.item())
        controller.update(target)
    controller.observe(SIMILARITIES)
    return [*values, controller.ess.item()]


@pytest.mark.parametrize(("temperature", "limit"), [(1.0, 1.0), (0.1, 1 / 30)])
def test_the_printed_rule_runs_away_from_the_target_on_both_sides(temperature: float, limit: float) -> None:
    values = run(temperature, "printed", 600)
    steps_away = [abs(later - 0.5) - abs(earlier - 0.5) for earlier, later in pairwise(values)]
    assert min(steps_away) > -1e-6
    assert values[-1] == pytest.approx(limit, abs=0.005)


@pytest.mark.parametrize(("temperature", "bound"), [(1.0, MIN_BETA), (0.1, MAX_BETA)])
def test_beta_stays_within_its_bounds(temperature: float, bound: float) -> None:
    controller = EssController(temperature=temperature, target=0.5, gain=0.5, rule="printed")
    for _ in range(100):
        controller.observe(SIMILARITIES)
        controller.update(0.5)
    assert controller.beta.item() == pytest.approx(bound)


@pytest.mark.parametrize(("rule", "factor"), [("corrected", 1.01), ("printed", 0.99)])
def test_one_update_above_the_target_is_one_factor(rule: str, factor: float) -> None:
    controller = EssController(temperature=0.25, target=0.3, gain=0.01, rule=rule)
    controller.observe(torch.zeros(4, 5))
    controller.update(0.3)
    assert controller.beta.item() == pytest.approx(4 * factor, rel=1e-6)


def test_the_mean_over_anchors_is_observed_under_the_present_beta() -> None:
    controller = EssController(temperature=0.2, target=0.3, gain=0.01)
    controller.observe(SIMILARITIES)
    torch.testing.assert_close(controller.ess, effective_sample_size(SIMILARITIES / 0.2).mean())


def test_a_checkpoint_carries_the_controller() -> None:
    controller = EssController(temperature=0.2, target=0.3, gain=0.01)
    controller.observe(SIMILARITIES)
    controller.update(0.25)
    other = EssController(temperature=1.0, target=0.9, gain=0.01)
    other.load_state_dict(controller.state_dict())
    assert sorted(controller.state_dict()) == ["beta", "ess", "target"]
    for one in (controller, other):
        one.observe(SIMILARITIES)
        one.update(0.25)
    torch.testing.assert_close(other.state_dict(), controller.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("schedule", "quarter"), [("linear", 0.25), ("cosine", (1 - math.sqrt(0.5)) / 2)])
def test_schedules_start_and_end_where_told_and_are_halfway_in_the_middle(schedule: str, quarter: float) -> None:
    for start, end in ((0.4, 0.2), (0.0, 1.0)):
        points = [scheduled_target(start, end, share, schedule=schedule) for share in (0.0, 0.25, 0.5, 1.0)]
        assert points == pytest.approx([start, start + quarter * (end - start), (start + end) / 2, end])
