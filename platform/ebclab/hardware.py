"""Which device a run uses, and how much memory it has left."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor

from ebclab.errors import UserError

MEMINFO = Path("/proc/meminfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")

_BESIDE_THE_CPU = ("cuda", "xpu", "hpu", "mtia", "mps")


def resolve_device(name: str, *, deterministic: bool = False) -> torch.device:
    """Return the device of the setting ``resources.device``.

    Args:
        name: "auto" (a device beside the CPU, where there is one that can do what a run needs), or a type of device as
            torch names it: "cpu", "cuda", "mps", "xpu", "hpu", or what a package has registered.
        deterministic: Beside the CPU, refuse kernels whose result depends on timing.

    Raises:
        UserError: torch has no such device here, or it cannot do what a run needs.
    """
    there = available_devices()
    if name == "auto":
        name = next((kind for kind in there if kind != "cpu" and has_float64(kind)), "cpu")
    if name not in there:
        raise UserError(
            f"resources.device: torch has no such device here, got {name}; it has {', '.join(there)}; "
            "use one of these, or auto"
        )
    if not has_float64(name):
        raise UserError(f"resources.device: views are drawn in float64, which it does not have, got {name}; use cpu")
    if deterministic and name != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=False)
    return torch.device(name)


def available_devices() -> list[str]:
    """Return the types of device that torch can use here, those beside the CPU first."""
    own = torch._C._get_privateuse1_backend_name()  # what a package has registered, or a word that is no device
    return [kind for kind in (*_BESIDE_THE_CPU, own) if _is_available(kind)] + ["cpu"]


def _is_available(kind: str) -> bool:
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:
        return False
    return bool(module.is_available())


def has_float64(kind: str) -> bool:
    """Return whether a type of device that is there computes in float64, as those of Apple do not."""
    try:
        torch.zeros((), dtype=torch.float64, device=kind)
    except (TypeError, RuntimeError):
        return False
    return True


def require_precision(precision: str, device: torch.device) -> None:
    """Refuse ``training.precision`` bfloat16 where torch says that a device or its autocast does not have it.

    Raises:
        UserError: It does not.
    """
    if precision != "bfloat16":
        return
    supported = getattr(torch.get_device_module(device), "is_bf16_supported", lambda: True)
    if not (torch.amp.is_autocast_available(device.type) and supported()):
        raise UserError(f"training.precision: {device.type} has no bfloat16 here, got bfloat16; use float32")


def device_name(device: torch.device) -> str:
    """Return what a device calls itself; that of the CPU is its type."""
    tell = getattr(torch.get_device_module(device), "get_device_name", None)
    return str(tell(device)) if tell else device.type


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of this machine's memory on a device, without waiting until it is there.

    A copy that nobody waits for must start from pinned memory; what is done with the tensor comes after it anyway.
    """
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def draws_put_back(device: torch.device) -> AbstractContextManager[None]:
    """Return a context that puts torch's global generators, the CPU's and the device's, back to where they were."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device], device_type=device.type)


def free_bytes(device: torch.device) -> int:
    """Return how many bytes of a device's memory a run may still take.

    A device that does not tell shares this machine's memory. Of that it is what Linux calls available: files that it
    keeps in otherwise idle memory do not count as taken, else a second look at the same images would find less room
    than the first. A container has no more than its limit. Where Linux does not tell, it is all memory.
    """
    tell = getattr(torch.get_device_module(device), "mem_get_info", None)
    if tell is not None:
        return int(tell(device)[0])
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = next((line.split()[1] for line in _lines(MEMINFO) if line.startswith("MemAvailable:")), "")
    limit = next(iter(_lines(CONTAINER_LIMIT)), "")
    return min(1024 * int(available) if available else total, int(limit) if limit.isdigit() else total)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def num_cores() -> int:
    """Return how many cores this machine has, whether or not this process may use them all."""
    return os.cpu_count() or 1


def usable_processors() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def set_threads(count: int, usual: int = 0) -> int:
    """Give torch as many threads as the setting ``resources.threads`` says.

    Args:
        count: The setting.
        usual: Threads where the setting is 0; 0 means one per core that this process may use.

    Returns:
        The number of threads in force.

    Raises:
        UserError: The setting exceeds the cores of this machine; torch dies when the system gives it no more threads.
    """
    if count > num_cores():
        raise UserError(
            f"resources.threads: more than the {num_cores()} cores of this machine, got {count}; "
            f"use at most {num_cores()}, or 0"
        )
    threads = count or usual or usable_processors()
    torch.set_num_threads(threads)
    return threads
