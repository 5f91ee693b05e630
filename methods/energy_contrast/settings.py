"""How a method declares its settings: frozen dataclasses whose fields say what they mean."""

from __future__ import annotations

from dataclasses import field
from difflib import get_close_matches
from typing import Any

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
