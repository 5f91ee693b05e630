"""A catalogue of two small methods: one with every setting that has a symbol in the papers, one with a rule."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from ebclab.config import parse_experiment
from ebclab.errors import ConfigError
from energy_contrast.settings import setting


@dataclass(frozen=True)
class PlainConfig:
    """Settings of the plain method."""

    temperature: float = setting(0.5, "Divides similarities.", above=0.0, symbol="tau")
    head: Literal["linear", "mlp"] = setting("mlp", "Shape of the head.")
    bounds: tuple[float, float] = setting((0.25, 0.75), "Two shares.", minimum=0.0, maximum=1.0)
    target: float = setting(0.0, "Where to go.", minimum=0.0)
    end: float = setting(0.0, "Where to stop.", minimum=0.0)
    gain: float = setting(0.01, "How fast.", symbol="gamma")

    def problems(self) -> list[str]:
        """The two go together."""
        return [f"end: needs target, got {self.end}; set both"] if self.end and not self.target else []


@dataclass(frozen=True)
class SampledConfig:
    """Settings named as DESIGN names the papers' symbols."""

    generative_weight: float = setting(0.1, "Weight.")
    reinit_rate: float = setting(0.2, "Share.")
    sigma_min: float = setting(0.01, "Smallest noise.")
    sigma_max: float = setting(0.05, "Largest noise.")
    noise_decay_count: int = setting(3, "Count.")
    step_size: float = setting(0.05, "Step.")
    gradient_clamp: float = setting(1.0, "Clamp.")
    num_steps: int = setting(10, "Steps.")
    temperature: float = setting(0.1, "Divides.")
    buffer_size: int = setting(50_000, "Images kept.")
    ess_target: float = setting(0.0, "Target.")
    projection_size: int = setting(128, "Size.")


@pytest.fixture
def methods() -> Any:
    return {"plain": SimpleNamespace(Config=PlainConfig), "sampled": SimpleNamespace(Config=SampledConfig)}


@pytest.fixture
def problems_of(methods: Any) -> Any:
    """Return the problems found in sections given over ``method: {name: plain}``."""

    def find(method: dict[str, Any] | None = None, **sections: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            parse_experiment({"method": {"name": "plain", **(method or {})}, **sections}, methods)
        return caught.value.problems

    return find
