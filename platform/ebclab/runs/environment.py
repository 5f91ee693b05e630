"""Describes the machine and the versions behind a run, and compares them when a run is resumed."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ebclab.config.addresses import without_credentials
from ebclab.errors import RunError
from ebclab.hardware import device_name
from ebclab.storage.reading import read_json_object

SENT_COMMIT = "EBCLAB_SOURCE_COMMIT"
"""Environment variable with the commit of code that was sent to a cluster."""

_PACKAGES = ("ebclab", "torch", "torchvision", "numpy", "ray", "timm", "scikit-learn")
_MATTERS_FOR_BITS = ("threads", "device", "torch", "machine", "processor", "ranks", "large_views")
ONE_BY_ONE = {"large_views": "one by one"}
"""Recorded by a launch that makes the views of large images one by one, on a CPU."""
_UNSAID = {"large_views": "in batches"}  # what holds for a launch that does not record it


def describe_environment(device: torch.device, threads: int, ranks: int, command: Sequence[str]) -> dict[str, Any]:
    """Return versions, machine, device, threads, ranks and source commit as plain values.

    Args:
        device: The device of this rank.
        threads: CPU threads of each rank.
        ranks: Number of processes that train together.
        command: The command line that the user ran.
    """
    versions = {name: _version(name) for name in _PACKAGES}
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": device_name(device),
        "threads": threads,
        "ranks": ranks,
        "commit": source_commit(),
        "command": [without_credentials(word) for word in command],
        **versions,
    }


def read_environment(path: Path) -> dict[str, Any]:
    """Return the environment that a launch recorded; empty if there is no such file or it is incomplete."""
    try:
        return read_json_object(path)
    except RunError:
        return {}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a line for each difference that can change the bits of a result.

    Args:
        before: The environment of the first launch.
        now: The environment of this launch.
    """
    before, now = (_UNSAID | before if before else {}), _UNSAID | now
    return [
        f"{key}: {before[key]} before, {now.get(key)} now"
        for key in _MATTERS_FOR_BITS
        if key in before and before[key] != now.get(key)
    ]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def source_commit() -> str | None:
    """Return the commit of the source tree that this package was run or sent from; None for a wheel or without git."""
    if sent := os.environ.get(SENT_COMMIT):
        return sent
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
