"""How long an epoch takes is told of the work of the device, not of the time that sending it takes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ebclab.sweeps import forecast
from ebclab.sweeps.plan import SweepPlan
from ebclab.training.captured import AS_THEY_ARE
from ebclab.training.setup import load_images, prepare
from energy_contrast.catalog import METHODS


class Device:
    """A clock, and work that the device has been sent: a step is sent in 10 ms and done in 700."""

    def __init__(self, slow: int) -> None:
        self.now, self.sent, self.slow = 0.0, 0.0, slow

    def step(self, training: object) -> dict[str, Device]:
        self.now += 0.01
        self.sent += 60 if self.slow > 0 else 0.7
        self.slow -= 1
        return {"loss": self}

    def __float__(self) -> float:
        self.now, self.sent = self.now + self.sent, 0.0
        return 0.0


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_forecast_waits_for_the_device_and_leaves_out_the_recording_of_a_step(
    sweep_plan: Callable[..., SweepPlan], monkeypatch: pytest.MonkeyPatch, is_captured: bool
) -> None:
    config = sweep_plan().config
    split = load_images(config)
    device = Device(slow=AS_THEY_ARE + 1 if is_captured else 1)

    def prepared(*given: Any) -> Any:
        made = prepare(*given)
        made.training.captured = SimpleNamespace() if is_captured else None
        return made

    monkeypatch.setattr(forecast, "prepare", prepared)
    monkeypatch.setattr(forecast, "train_step", device.step)
    monkeypatch.setattr(forecast, "time", SimpleNamespace(perf_counter=lambda: device.now))
    found = forecast.epoch_seconds(config, split, METHODS, threads=1)
    scored = (len(split.train) + len(split.holdout)) / config.training.batch_size / 6
    assert found == pytest.approx(0.71 * (len(split.train) // config.training.batch_size + scored))
    assert device.now % 60 < 5.0  # three seconds of steps, beside the first ones
