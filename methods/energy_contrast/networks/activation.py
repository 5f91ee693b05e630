"""Activations by name."""

from __future__ import annotations

from torch import nn

LEAKY_SLOPE = 0.2
ACTIVATIONS = ("relu", "leaky_relu")


def make_activation(name: str, *, inplace: bool = True) -> nn.Module:
    """Return an activation, which works in place unless asked not to.

    ``relu(x) = max(x, 0)``, ``leaky_relu(x) = max(x, 0.2 x)``

    Args:
        name: ``relu`` or ``leaky_relu``.
        inplace: Write over the input.

    Returns:
        The module.

    Raises:
        ValueError: If the name is unknown.

    >>> make_activation("leaky_relu").negative_slope
    0.2

    Source: slope of EBCLR (arXiv:2202.04933), as released.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: no such value, got {name!r}; use one of {', '.join(ACTIVATIONS)}")
    return nn.ReLU(inplace=inplace) if name == "relu" else nn.LeakyReLU(LEAKY_SLOPE, inplace=inplace)
