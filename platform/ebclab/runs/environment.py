"""The machine and the versions behind a run, in words, and compared when a run is resumed."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebclab.config.yaml_text import JsonObject
from ebclab.errors import RunError
from ebclab.formatting import count, without_credentials
from ebclab.storage.reading import read_typed

if TYPE_CHECKING:
    import torch  # pages say which machine runs had, and import no torch

SENT_COMMIT = "EBCLAB_SOURCE_COMMIT"
"""Environment variable with the commit of code that was sent to a cluster."""

_PACKAGES = ("ebclab", "torch", "torchvision", "numpy", "ray", "timm", "scikit-learn")
_MATTERS_FOR_BITS = ("threads", "device", "torch", "machine", "processor", "ranks", "large_views", "variables")
_VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
"""Environment variables by which torch and its libraries choose kernels, and with them how results are rounded."""
ONE_BY_ONE = {"large_views": "one by one, torch's crop"}
"""Recorded by a launch that makes the views of large images one by one, on a CPU."""
_UNSAID = {"large_views": "in batches", "variables": "none"}  # what holds for a launch that does not record it


def describe_environment(device: torch.device, threads: int, ranks: int, command: Sequence[str]) -> JsonObject:
    """Return versions, machine, device, threads, ranks, source commit and variables, if any is set, as plain values."""
    from ebclab.hardware import device_name

    versions = {name: version_of(name) for name in _PACKAGES}
    variables = ", ".join(f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name))
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
        **({"variables": variables} if variables else {}),
    }


def read_environment(path: Path) -> dict[str, Any]:
    """Return the environment that a launch recorded; empty if there is no such file or a value has another type."""
    try:
        return read_typed(path, dict[str, str | int | float | list[str] | None])
    except RunError:
        return {}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a line for each difference from the first launch that can change the bits of a result."""
    before, now = (_UNSAID | before if before else {}), _UNSAID | now
    return [
        f"{key}: {before[key]} before, {now.get(key)} now"
        for key in _MATTERS_FOR_BITS
        if key in before and before[key] != now.get(key)
    ]


@cache
def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
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
    return os.environ.get(SENT_COMMIT) or _commit_of(Path(__file__).parents[3])


@cache
def _commit_of(root: Path) -> str | None:
    """Return the commit of a source tree when this process first asked: what was imported does not change later."""
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


_MAIN_PACKAGES = ("python", "ebclab", "torch", "torchvision", "ray", "numpy", "scikit-learn")


def machine_in_words(environment: Mapping[str, Any], whose: str) -> str:
    """Return device, processor, machine and threads, which are those of ``whose``; empty if nothing is known."""
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
    return ", ".join(f"{name} {environment[name]}" for name in _MAIN_PACKAGES if environment.get(name))


def command_in_words(environment: Mapping[str, Any]) -> str:
    """Return the command of a launch, to be typed again; empty if it is not known."""
    command = environment.get("command")
    if not isinstance(command, list) or not command:
        return ""
    words = [str(word) for word in command]
    program = words[0].removesuffix("/__main__.py").rsplit("/", 1)[-1]  # also for `python -m ebclab`
    return shlex.join([program, *words[1:]])
