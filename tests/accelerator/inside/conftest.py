"""A device that is there for all tests of the folder, and small runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pretended_device import PretendedDevice, pretended_device
from small_methods import SMALL

from ebclab.config import ExperimentConfig, compose

TINY = (
    *("data.name=digits", "data.train_limit=24", "data.holdout_rate=0.2", "views.jitter_rate=0"),
    *("encoder.name=small", "encoder.width=2", "optimizer.learning_rate=0.001", "resources.threads=1"),
    *(
        "training.batch_size=8",
        "training.epochs=2",
        "training.log_every=100",
        "evaluation.batch_size=2000",
        "evaluation.knn_neighbours=5",
    ),
)
"""Grey digits, whose views have the same bits on every device: colours are jittered in another order there."""


@pytest.fixture(scope="session", autouse=True)
def pretended() -> Iterator[PretendedDevice]:
    """The device."""
    with pretended_device() as there:
        yield there


@pytest.fixture
def device(pretended: PretendedDevice) -> torch.device:
    """The device as torch names it."""
    return pretended.device


@pytest.fixture(scope="session")
def tiny() -> Callable[..., ExperimentConfig]:
    """Return a function that makes the settings of a small run: method, device and further settings."""

    def make(method: str, where: str, *overrides: str) -> ExperimentConfig:
        own = {"batch_norm_groups": 2} if method == "moco" else {}
        small = [f"method.{name}={value}" for name, value in {**SMALL.get(method, {}), **own}.items()]
        return compose(method, overrides=[*TINY, *small, f"resources.device={where}", *overrides])

    return make


class Killed(BaseException):
    """What ends a process; nothing in the lab catches it."""


class KillsAt:
    """A display that dies when it is to show a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        if step >= self._step:
            raise Killed

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: None


@pytest.fixture
def kills_at() -> Callable[[int], KillsAt]:
    """Return a function that makes a display which dies at a step."""
    return KillsAt
