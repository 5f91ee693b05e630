"""The small encoder by counting."""

import torch

from energy_contrast.networks.small import SmallEncoder


def test_parameters_number_as_drawn() -> None:
    stem = 9 * 1 * 16 + 2 * 16
    stages = [2 * 9 * 16 * 16 + 4 * 16]
    for w in (16, 32):
        stages.append(9 * w * 2 * w + 9 * (2 * w) ** 2 + w * 2 * w + 6 * 2 * w)
    assert sum(p.numel() for p in SmallEncoder(in_channels=1).parameters()) == stem + sum(stages)


def test_memory_format_does_not_change_the_embedding() -> None:
    network = SmallEncoder(in_channels=3, width=8)
    images = torch.randn(4, 3, 16, 16)
    expected = network(images)
    network = network.to(memory_format=torch.channels_last)
    actual = network(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
