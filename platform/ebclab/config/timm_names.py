"""Names of timm's networks; timm is imported only if one is used, because that takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec

from ebclab.config.addresses import shortened
from ebclab.formatting import how_to_install

TIMM = "timm/"
"""Prefix of the name of a network of timm."""
NO_TIMM = f"timm is not installed here; run {how_to_install('timm')}"

_NUM_SUGGESTED = 3


def architecture_problem(name: str) -> str | None:
    """Return what is wrong with ``name`` as a network of timm, or None."""
    shown = shortened(f"{TIMM}{name}")
    if find_spec("timm") is None:
        return f"{NO_TIMM}, got {shown}"
    import timm

    architecture, dot, _ = name.partition(".")
    if timm.is_model(architecture) and dot:
        return (
            f"an architecture is wanted, got {shown}, which names weights too; "
            f"write {TIMM}{architecture}, and init.weights={shown} to start from them"
        )
    if timm.is_model(name):
        return None
    return f"no such network in timm {timm.__version__}, got {shown}; {_nearest(name, timm.list_models())}"


def weights_problem(name: str) -> str | None:
    """Return what is wrong with ``name`` as weights that timm can fetch, or None.

    Args:
        name: Without the prefix: a network, or a network and its tag as in resnet18.a1_in1k.
    """
    shown = shortened(f"{TIMM}{name}")
    if find_spec("timm") is None:
        return f"{NO_TIMM}, got {shown}"
    import timm

    known = timm.list_pretrained()
    if name in known or timm.models.is_model_pretrained(name):
        return None
    names = [*dict.fromkeys(each.partition(".")[0] for each in known), *known] if "." not in name else known
    return f"timm {timm.__version__} has no weights of this name, got {shown}; {_nearest(name, names)}"


def _nearest(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name.lower(), list(names), n=_NUM_SUGGESTED, cutoff=0.5)
    if not close:
        return "timm.list_models() prints them"
    return f"did you mean {' or '.join(TIMM + each for each in close)}?"
