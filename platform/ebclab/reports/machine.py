"""The machine and the versions behind a run or a sweep, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebclab.formatting import count

_PACKAGES = ("python", "ebclab", "torch", "torchvision", "ray", "numpy", "scikit-learn")


def machine_in_words(environment: Mapping[str, Any], whose: str) -> str:
    """Return device, processor and threads; empty when nothing is known.

    Args:
        environment: What a launch wrote down of itself.
        whose: Whose threads they are, such as "a trial".
    """
    if not environment:
        return ""
    device, threads = environment.get("device", "cpu"), environment.get("threads")
    cores = environment.get("cores")
    held = f", {count(cores, 'core')}" if isinstance(cores, int) else ""
    processor = f"{environment.get('processor') or 'unknown processor'}{held}"
    on = "" if device == "cpu" else f"{device}, "
    own = f", {count(threads, 'thread')} {whose}" if isinstance(threads, int) and threads else ""
    return f"{on}{processor}, {environment.get('machine', '')}{own}"


def versions_in_words(environment: Mapping[str, Any]) -> str:
    """Return the packages that matter with their versions; empty when nothing is known."""
    return ", ".join(f"{name} {environment[name]}" for name in _PACKAGES if environment.get(name))
