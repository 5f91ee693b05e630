"""Which device a run uses, and how much memory it has left."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from ebclab.errors import UserError

MEMINFO = Path("/proc/meminfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def resolve_device(name: str, *, deterministic: bool = False) -> torch.device:
    """Return the device of the setting ``resources.device``.

    Args:
        name: "auto" (a GPU when there is one), "cpu" or "cuda".
        deterministic: On a GPU, refuse kernels whose result depends on timing.

    Raises:
        UserError: A GPU was asked for and there is none.
    """
    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise UserError("resources.device: no CUDA GPU is visible to torch here, got cuda; use auto or cpu")
    if name == "cpu" or not found:
        return torch.device("cpu")
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=False)
    return torch.device("cuda")


def free_bytes(device: torch.device) -> int:
    """Return how many bytes of a device's memory a run may still take.

    Of this machine's memory that is what Linux calls available: files that it keeps in otherwise idle memory do not
    count as taken, else a second look at the same images would find less room than the first. A container has no more
    than its limit. Where Linux does not tell, it is all memory.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = next((line.split()[1] for line in _lines(MEMINFO) if line.startswith("MemAvailable:")), "")
    limit = next(iter(_lines(CONTAINER_LIMIT)), "")
    return min(1024 * int(available) if available else total, int(limit) if limit.isdigit() else total)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def num_cores() -> int:
    """Return how many cores this machine has, whether or not this process may use them all."""
    return os.cpu_count() or 1


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
    threads = count or usual or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    return threads
