"""What a run needs of the machine before its network is built."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ebclab.config import compose
from ebclab.errors import ConfigError
from ebclab.training import setup
from energy_contrast.contrastive.simclr import Simclr


@pytest.mark.parametrize("ranks", [1, 2])
def test_views_fit_up_to_the_last_free_byte_and_the_message_has_the_sum(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose("simclr", overrides=["training.batch_size=6"])
    needed = sum(4 for _ in range(6 // ranks) for _ in range(2) for _ in range(3) for _ in range(10) for _ in range(10))
    alone: Any = SimpleNamespace(world_size=ranks)
    arguments = (config, Simclr, 3, 10, torch.device("cpu"), alone)
    monkeypatch.setattr(setup, "free_bytes", lambda device: needed)
    setup.require_room_for_views(*arguments)
    monkeypatch.setattr(setup, "free_bytes", lambda device: needed - 1)
    with pytest.raises(ConfigError) as refused:
        setup.require_room_for_views(*arguments)
    (line,) = refused.value.problems
    assert f"got 10 pixels: {6 // ranks} images x 2 views x 3x10x10 pixels x 4 bytes = " in line


@pytest.mark.parametrize(
    ("size", "got"), [(10**12, "a part of 256.0 TB"), (10**17, "too large a part")], ids=["no room", "no such number"]
)
def test_a_network_for_which_the_memory_has_no_room_is_a_sentence(size: int, got: str) -> None:
    """10^12 outputs of 64 inputs are 256 * 10^12 bytes, more than a process can address; of 10^17, more than 2^63."""
    config = compose("simclr", overrides=["encoder.name=small", f"method.projection_size={size}"])
    with pytest.raises(ConfigError) as refused:
        setup.build_method(config, Simclr, 3, torch.device("cpu"))
    (line,) = refused.value.problems
    assert line == f"encoder, method: the memory has no room for the network, got {got}; make sizes and layers smaller"
