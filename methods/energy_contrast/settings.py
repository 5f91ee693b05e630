"""How a method declares its settings: frozen dataclasses whose fields say what they mean.

Those of a package of methods are in its ``settings.py``. No such file imports torch, which takes a second or two:
settings are shown, checked and compared by commands that train nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

MOST_LAYERS = 100
"""Layers of a head at most: each takes time to build even if it is small."""


def setting(
    default: Any,
    doc: str,
    *,
    unit: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    symbol: str | None = None,
) -> Any:
    """Return a dataclass field that carries its own documentation and range.

    Args:
        default: The value if the user gives none. Lists are refused; use tuples.
        doc: One sentence that a user reads in ``ebclab show``.
        unit: Physical or counted unit ("epochs", "pixels", "1/temperature").
        minimum: Smallest allowed value, inclusive.
        maximum: Largest allowed value, inclusive.
        above: The value must be greater than this.
        below: The value must be less than this.
        symbol: The paper's symbol for it ("tau", "lambda"); error messages name the setting to users who write it.

    Returns:
        A ``dataclasses.field`` whose metadata holds every argument that was given.
    """
    facts = {
        "doc": doc,
        "unit": unit,
        "minimum": minimum,
        "maximum": maximum,
        "above": above,
        "below": below,
        "symbol": symbol,
    }
    return field(default=default, metadata={k: v for k, v in facts.items() if v is not None})


def require_word(where: str, word: str, known: tuple[str, ...]) -> None:
    """Refuse a word that is not one of those known, and name the nearest, or else all.

    Raises:
        ValueError: If it is not.

    >>> require_word("activation", "relu", ("relu", "leaky_relu"))

    Source: ours.
    """
    if word not in known:
        nearest = get_close_matches(word, known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "use one of " + ", ".join(known)
        raise ValueError(f"{where}: no such value, got {word!r}; {hint}")


@dataclass(frozen=True)
class TemperatureConfig:
    """The setting of a loss that compares cosines at a temperature."""

    temperature: float = setting(0.2, "Divides cosine similarities; 0.1 to 0.5 are usual.", above=0.0, symbol="tau")


@dataclass(frozen=True)
class EssConfig(TemperatureConfig):
    """Settings of a method whose temperature may be held by the effective sample size of its negatives."""

    ess_target: float = setting(
        0.0,
        "Effective sample size at which the temperature is held; 0 keeps the temperature constant.",
        unit="share of the negatives",
        minimum=0.0,
        below=1.0,
        symbol="ESS target",
    )
    ess_target_end: float = setting(
        0.0,
        "Target at the end of training; 0 means the target stays as it starts.",
        unit="share of the negatives",
        minimum=0.0,
        below=1.0,
    )
    ess_schedule: Literal["linear", "cosine"] = setting("linear", "How the target moves from start to end.")
    ess_gain: float = setting(
        0.01, "Relative change of 1/temperature in one step.", unit="1/step", above=0.0, below=1.0, symbol="gamma"
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if self.ess_target == 0 and self.ess_target_end > 0:
            return [f"ess_target_end: needs a target to start from, got {self.ess_target_end}; set ess_target too"]
        return []
