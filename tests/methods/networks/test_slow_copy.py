"""Slow copies: the average after n steps is the geometric series, and nothing else moves."""

import pytest
import torch
from torch import nn

from energy_contrast.networks.slow_copy import follow, slow_copy


def test_after_n_steps_the_average_is_the_geometric_series_of_the_weights() -> None:
    network = nn.Linear(3, 2).double()
    average = slow_copy(network)
    first = network.weight.detach().clone()
    seen = []
    for _ in range(4):
        nn.init.normal_(network.weight)
        seen.append(network.weight.detach().clone())
        follow(average, network, momentum=0.8)
    expected = 0.8**4 * first + sum(0.2 * 0.8 ** (3 - i) * weight for i, weight in enumerate(seen))
    torch.testing.assert_close(average.weight, expected)
    torch.testing.assert_close(network.weight, seen[-1], rtol=0, atol=0)


@pytest.mark.parametrize(("momentum", "kept"), [(1.0, True), (0.0, False)])
def test_momentum_1_keeps_the_copy_and_momentum_0_copies_anew(momentum: float, kept: bool) -> None:
    network = nn.Linear(3, 2)
    average = slow_copy(network)
    before = average.weight.clone()
    nn.init.zeros_(network.weight)
    follow(average, network, momentum=momentum)
    assert torch.equal(average.weight, before if kept else network.weight)


def test_a_copy_learns_nothing_by_gradient_and_has_running_statistics_of_its_own() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = slow_copy(network)
    network(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    follow(average, network, momentum=0.5)
    assert not any(weight.requires_grad for weight in average.parameters())
    assert all(weight.requires_grad for weight in network.parameters())
    assert torch.equal(average[1].running_mean, torch.zeros(2))
    assert not torch.equal(network[1].running_mean, torch.zeros(2))
