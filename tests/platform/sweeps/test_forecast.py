"""How long an epoch takes is told of the work of the device, not of the time that sending it takes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ebclab.sweeps import forecast
from ebclab.sweeps.plan import SweepPlan
from ebclab.training.setup import load_images
from energy_contrast.catalog import METHODS


class Device:
    """A clock, and work that the device has been sent: a step is sent in 10 ms and done in 700."""

    def __init__(self) -> None:
        self.now, self.sent = 0.0, 0.0

    def step(self, training: object) -> dict[str, Device]:
        self.now += 0.01
        self.sent += 0.7
        return {"loss": self}

    def __float__(self) -> float:
        self.now, self.sent = self.now + self.sent, 0.0
        return 0.0


def test_a_forecast_waits_for_the_device(sweep_plan: Callable[..., SweepPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    config, device = sweep_plan().config, Device()
    split = load_images(config)
    monkeypatch.setattr(forecast, "train_step", device.step)
    monkeypatch.setattr(forecast, "time", SimpleNamespace(perf_counter=lambda: device.now))
    found = forecast.epoch_seconds(config, split, METHODS, threads=1)
    scored = (len(split.train) + len(split.holdout)) / config.training.batch_size / 6
    assert found == pytest.approx(0.71 * (len(split.train) // config.training.batch_size + scored))
    assert device.now < 5.0  # three seconds of steps, beside the first one
