"""Selects the device and the threads of a run, and determines the free memory."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from ebclab.background import handle_sigterm
from ebclab.errors import UserError

MEMINFO = Path("/proc/meminfo")
CONTROL_GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MEMORY_LIMITS = {"": ("memory.max",), "memory": ("memory.limit_in_bytes",)}
"""Files with the memory limit of a control group, by the name of its hierarchy: empty in version 2 of cgroups."""
_KILL_COUNTS = {"": ("memory.events",), "memory": ("memory.oom_control",)}
_CPU_TIMES = {"": ("cpu.max",), "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
"""Files with quota and period of a control group's processor time, in microseconds, by the name of its hierarchy."""
_OWN_THREADS = ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK")

_BESIDE_THE_CPU = ("cuda", "xpu", "hpu", "mtia", "mps")


def resolve_device(name: str, *, deterministic: bool = False) -> torch.device:
    """Return the device of the setting ``resources.device``.

    Args:
        name: "auto" (an accelerator if there is a suitable one, else the CPU), or a device type of torch: "cpu",
            "cuda", "mps", "xpu", "hpu", or one that a package has registered.
        deterministic: On an accelerator, use deterministic kernels only.
    """
    _require_usual_tensors()
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


def _require_usual_tensors() -> None:
    """Check that new tensors are float32 and on the CPU, as torch has it unless a program changes it."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    if dtype != torch.float32:
        raise UserError(f"torch: new tensors must be float32, got {dtype}; call torch.set_default_dtype(torch.float32)")
    if device.type != "cpu":
        raise UserError(f"torch: new tensors must be on the CPU, got {device}; call torch.set_default_device('cpu')")


def available_devices() -> list[str]:
    """Return the device types that torch can use on this machine, accelerators first."""
    own = torch._C._get_privateuse1_backend_name()  # registered by a package, or a placeholder
    return [kind for kind in (*_BESIDE_THE_CPU, own) if _is_available(kind)] + ["cpu"]


def _is_available(kind: str) -> bool:
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:
        return False
    return bool(module.is_available())


def has_float64(kind: str) -> bool:
    """Return whether a device type supports float64; Apple's GPUs do not."""
    try:
        torch.zeros((), dtype=torch.float64, device=kind)
    except (TypeError, RuntimeError):
        return False
    return True


def require_precision(precision: str, device: torch.device) -> None:
    """Check that a device and its autocast support ``training.precision``."""
    if precision == "float32":
        return
    has_bfloat16 = getattr(torch.get_device_module(device), "is_bf16_supported", lambda: True)
    supported = precision != "bfloat16" or has_bfloat16()
    if not (supported and torch.amp.is_autocast_available(device.type) and _casts(device, getattr(torch, precision))):
        raise UserError(f"training.precision: {device.type} has no {precision} here, got {precision}; use float32")


def _casts(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether autocast to ``dtype`` works on a device; where it does not, torch warns and casts nothing."""
    with warnings.catch_warnings(action="ignore"), torch.autocast(device.type, dtype=dtype):
        return torch.is_autocast_enabled(device.type)


def device_name(device: torch.device) -> str:
    """Return the product name of a device; its type, e.g. "cpu", if it has none."""
    tell = getattr(torch.get_device_module(device), "get_device_name", None)
    return str(tell(device)) if tell else device.type


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to a device asynchronously.

    The tensor is pinned first, as asynchronous copies require; later operations on the result are queued behind it.
    """
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def draws_put_back(device: torch.device) -> AbstractContextManager[None]:
    """Return a context manager that restores torch's global generators, of the CPU and of the device, on exit."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device], device_type=device.type)


def free_bytes(device: torch.device) -> int:
    """Return the number of bytes of a device's memory that are free for a run.

    A device that cannot report its memory is assumed to share the machine's. Then this is Linux's "available" memory,
    which includes reclaimable file cache, so that images in the cache do not reduce it; at most the memory limit of the
    container, or of the job of Slurm. Without these figures, the total memory is returned.
    """
    tell = getattr(torch.get_device_module(device), "mem_get_info", None)
    if tell is not None:
        return int(tell(device)[0])
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = next((line.split()[1] for line in _lines(MEMINFO) if line.startswith("MemAvailable:")), "")
    return min(1024 * int(available) if available else total, *_memory_limits(), total)


def kernel_kills() -> dict[str, int]:
    """Return how many processes the kernel has killed out of memory in the control group of this process, by its file.

    Empty if the kernel does not tell it.
    """
    for (file,) in _of_own_groups(_KILL_COUNTS):
        for name, _, number in (line.partition(" ") for line in _lines(file)):
            if name == "oom_kill" and number.isdecimal():
                return {str(file): int(number)}
    return {}


def _memory_limits() -> Iterator[int]:
    """Yield the memory limits in bytes of the control groups of this process, and of those around them."""
    for (file,) in _of_own_groups(_MEMORY_LIMITS):
        limit = next(iter(_lines(file)), "")
        if limit.isdecimal():
            yield int(limit)


def _of_own_groups(names: Mapping[str, tuple[str, ...]]) -> Iterator[list[Path]]:
    """Yield files, named by hierarchy, of each control group of this process, and then of those around it."""
    for line in _lines(OWN_GROUPS) or ["0::/", "1:memory:/", "2:cpu:/"]:
        _, hierarchies, path = line.split(":", 2)  # several, joined: cpu,cpuacct
        group = PurePosixPath(path)  # of the host, also within some containers, which see the outermost alone
        for hierarchy in names.keys() & set(hierarchies.split(",")):
            for each in (group, *group.parents):
                folder = CONTROL_GROUPS / hierarchy / str(each).lstrip("/")
                yield [folder / name for name in names[hierarchy]]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def num_cores() -> int:
    """Return the number of cores of this machine, including those that this process may not use."""
    return os.cpu_count() or 1


def usable_processors() -> int:
    """Return the number of cores that this process may use, by its affinity and by the time of its control groups."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        cores = len(os.sched_getaffinity(0))
    else:
        count: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)  # the first since Python 3.13
        cores = count() or 1
    for files in _of_own_groups(_CPU_TIMES):
        quota, _, period = " ".join(line for path in files for line in _lines(path)).partition(" ")
        if quota.isdecimal() and period.isdecimal():  # "max" and -1 are no limit
            cores = min(cores, max(1, int(quota) // int(period)))  # with a thread more, all wait for the slowest
    return cores


@contextmanager
def as_before() -> Iterator[None]:
    """Restore on exit what a notebook would notice.

    That is the environment, filters of warnings, torch's threads, deterministic kernels, and what Ray changes: the
    state of ``random`` and the handler of SIGTERM. Within, gradients are computed and nothing is cast, whatever the
    caller's modes are.
    """
    _require_usual_tensors()
    environment, threads, (strict, warns) = dict(os.environ), torch.get_num_threads(), _determinism()
    drawn, handler = random.getstate(), signal.getsignal(signal.SIGTERM)
    casting = [kind for kind in available_devices() if torch.is_autocast_enabled(kind)]
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.enable_grad(), ExitStack() as modes:
            for kind in casting:
                modes.enter_context(torch.autocast(kind, enabled=False))
            yield
    finally:
        torch.set_num_threads(threads)
        if (strict, warns) != _determinism():  # torch imports its compiler to set it, which takes a second
            torch.use_deterministic_algorithms(strict, warn_only=warns)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        random.setstate(drawn)
        handle_sigterm(handler)


def _determinism() -> tuple[bool, bool]:
    """Return whether torch uses deterministic kernels only, and whether it only warns of others."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def set_threads(count: int, usual: int = 0) -> int:
    """Set the number of torch's threads to the setting ``resources.threads``.

    Args:
        usual: Threads if the setting is 0; 0 means one per core that this process may use, at most as many as
            OMP_NUM_THREADS and SLURM_CPUS_PER_TASK say.

    Returns:
        The number of threads that is now used.
    """
    if count > num_cores():
        raise UserError(
            f"resources.threads: more than the {num_cores()} cores of this machine, got {count}; "
            f"use at most {num_cores()}, or 0"
        )
    own = (os.environ.get(name, "").partition(",")[0].strip() for name in _OWN_THREADS)
    asked = [int(text) for text in own if text.isdecimal() and int(text) > 0]
    threads = count or usual or min([usable_processors(), *asked])
    torch.set_num_threads(threads)
    return threads
