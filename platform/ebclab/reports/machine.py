"""Descriptions of the machine and the package versions of a run or a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ebclab.formatting import count

_PACKAGES = ("python", "ebclab", "torch", "torchvision", "ray", "numpy", "scikit-learn")


def machine_in_words(environment: Mapping[str, Any], whose: str) -> str:
    """Return a description of device, processor, machine and threads; empty if nothing is known.

    Args:
        environment: Environment recorded by a launch.
        whose: Owner of the threads, e.g. "a trial".
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
    """Return the main packages with their versions; empty if nothing is known."""
    return ", ".join(f"{name} {environment[name]}" for name in _PACKAGES if environment.get(name))


def command_in_words(environment: Mapping[str, Any]) -> str:
    """Return the command of a launch, to be typed again; empty if it is not known."""
    command = environment.get("command")
    if not isinstance(command, list) or not command:
        return ""
    words = [str(word) for word in command]
    program = words[0].removesuffix("/__main__.py").rsplit("/", 1)[-1]  # also for `python -m ebclab`
    return shlex.join([program, *words[1:]])
