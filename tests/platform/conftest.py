"""Set-up of the lab's tests: what commands tell Ray by environment variables ends with each test."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ebclab.config import compose
from ebclab.sweeps.make_plan import make_plan
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.space.space import parse_space

SPACE = {
    "optimizer.learning_rate": {"loguniform": [1e-5, 0.1]},
    "method.temperature": {"uniform": [0.1, 1.0]},
}


@pytest.fixture(autouse=True)
def _authentication_stays_as_it_was() -> Iterator[None]:
    """Put back RAY_AUTH_MODE, which commands set for the process that they would otherwise be."""
    before = os.environ.get("RAY_AUTH_MODE")
    yield
    os.environ.pop("RAY_AUTH_MODE", None)
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before


@pytest.fixture
def sweep_plan() -> Callable[..., SweepPlan]:
    """Make a plan of two live settings of SimCLR on digits; keywords are those of ``make_plan``."""

    def make(*overrides: str, space: dict[str, Any] | None = None, **asked: Any) -> SweepPlan:
        small = ["data.train_limit=128", "training.batch_size=64", "training.epochs=6", "encoder.width=4"]
        config = compose("simclr", overrides=[*small, "resources.threads=1", *overrides])
        return make_plan(config, space=parse_space({"parameters": space or SPACE}, "test"), **asked)

    return make
