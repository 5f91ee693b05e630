"""How much memory a run may take, as Linux and containers tell it."""

import inspect
import os
import random
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import ebclab
from ebclab import hardware as device
from ebclab.config import compose, compose_for_user
from ebclab.errors import ConfigError, UserError
from ebclab.hardware import (
    as_before,
    draws_put_back,
    free_bytes,
    kernel_kills,
    num_cores,
    resolve_device,
    set_threads,
)

CPU = torch.device("cpu")
TOTAL = 16_000_000 * 1024


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a test writes what the machine says of itself: 16 GB, and what is in the files there."""
    monkeypatch.setattr(device, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(device, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(device, "OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(device.os, "sysconf", {"SC_PHYS_PAGES": TOTAL // 4096, "SC_PAGE_SIZE": 4096}.__getitem__)
    return tmp_path


class Generators:
    """Global draws of a device that torch asks for their state and gives it back."""

    state = torch.zeros(4)

    @classmethod
    def get_rng_state(cls, device: torch.device) -> torch.Tensor:
        return cls.state.clone()

    @classmethod
    def set_rng_state(cls, state: torch.Tensor, device: torch.device) -> None:
        cls.state = state


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_global_draws_of_any_device_are_put_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda _: Generators)
    before = torch.get_rng_state()
    with draws_put_back(torch.device(kind)):
        Generators.state = torch.ones(4)
        torch.rand(3)
    assert torch.equal(Generators.state, torch.zeros(4))
    assert torch.equal(torch.get_rng_state(), before)
    with draws_put_back(CPU):
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("available", "limit", "expected"),
    [
        ("MemTotal: 16000000 kB\nMemFree: 1000000 kB\nMemAvailable: 12000000 kB\n", "", 12_000_000 * 1024),
        ("MemAvailable: 12000000 kB\n", "4000000000\n", 4_000_000_000),
        ("MemAvailable: 12000000 kB\n", "max\n", 12_000_000 * 1024),
        ("", "", TOTAL),
    ],
)
def test_memory_of_caches_is_free_up_to_what_a_container_may_have(told, available, limit, expected):
    for name, text in (("meminfo", available), ("memory.max", limit)):
        if text:
            (told / name).write_text(text)
    assert free_bytes(CPU) == expected


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/", {"memory.max": "3000"}, 3000),
        ("0::/slurm/job_7/step_0", {"slurm/job_7/memory.max": "2000", "slurm/job_7/step_0/memory.max": "max"}, 2000),
        ("0::/a", {"memory.max": "3000", "a/memory.max": "4000"}, 3000),
        ("5:cpu:/a\n4:memory:/a/b\n0::/", {"memory/a/b/memory.limit_in_bytes": "2000"}, 2000),
        ("4:memory:/docker/1f", {"memory/memory.limit_in_bytes": "1000"}, 1000),  # the host's name of what is outermost
        ("4:memory:/", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, TOTAL),  # no limit
    ],
)
def test_the_least_limit_of_the_groups_around_a_process_counts(told, groups, limits, expected):
    (told / "cgroup").write_text(f"{groups}\n")
    for name, text in limits.items():
        (told / name).parent.mkdir(parents=True, exist_ok=True)
        (told / name).write_text(f"{text}\n")
    assert free_bytes(CPU) == expected


@pytest.mark.parametrize(
    ("groups", "counts", "expected"),
    [
        ("0::/job/a", {"job/a/memory.events": "low 0\noom_kill 4", "job/memory.events": "oom_kill 9"}, {"job/a/": 4}),
        ("0::/job/a", {"job/memory.events": "oom_kill 9"}, {"job/": 9}),
        ("4:memory:/docker/1f", {"memory/memory.oom_control": "under_oom 0\noom_kill 2"}, {"memory/": 2}),
        ("0::/", {"memory.events": "oom 5\noom_kill many"}, {}),
        ("0::/", {}, {}),
    ],
)
def test_kills_of_the_kernel_are_counted_in_the_innermost_group_that_tells_them(told, groups, counts, expected):
    (told / "cgroup").write_text(f"{groups}\n")
    for name, text in counts.items():
        (told / name).parent.mkdir(parents=True, exist_ok=True)
        (told / name).write_text(f"{text}\n")
    found = {str(Path(name).parent.relative_to(told)) + "/": count for name, count in kernel_kills().items()}
    assert found == expected


@pytest.mark.parametrize("strict", [True, False])
def test_torch_s_threads_and_kernels_and_the_environment_are_put_back(strict, monkeypatch):
    """Kernels only if they have changed: to set them, torch imports its compiler, which takes a second."""
    asked: list[bool] = []

    def use(mode: bool, *, warn_only: bool = False) -> None:
        asked.append(mode)
        torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)

    monkeypatch.setattr(torch, "use_deterministic_algorithms", use)
    monkeypatch.setenv("CHANGED", "before")

    def state() -> tuple[object, ...]:
        return (
            dict(os.environ),
            warnings.filters[:],
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
        )

    before = state()

    @as_before()
    def spoil() -> None:
        os.environ.update({"CHANGED": "now", "NEW": "now"})
        warnings.filterwarnings("ignore", module="noisy")
        torch.set_num_threads(torch.get_num_threads() + 1)
        if strict:
            torch.use_deterministic_algorithms(True)
        raise UserError("spoilt")

    with pytest.raises(UserError, match="spoilt"):
        spoil()
    assert state() == before
    assert asked == ([True, False] if strict else [])


def test_random_numbers_and_the_handler_of_sigterm_are_as_before() -> None:
    """Ray draws a port, and replaces the handler when it starts."""
    drawn, handler = random.getstate(), signal.getsignal(signal.SIGTERM)
    try:
        with as_before():
            random.random()
            signal.signal(signal.SIGTERM, lambda *_: None)
        assert (random.getstate(), signal.getsignal(signal.SIGTERM)) == (drawn, handler)
    finally:
        signal.signal(signal.SIGTERM, handler)
    said: list[str] = []

    def elsewhere() -> None:
        with as_before():  # no thread but the main one may set a handler
            said.append("computed")

    with ThreadPoolExecutor() as threads:
        threads.submit(elsewhere).result()
    assert said == ["computed"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_of_the_caller_do_not_reach_into_training(mode: type) -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    with mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        with as_before():
            loss = (weight @ weight).sum()
        assert not (weight @ weight).requires_grad
        assert (weight @ weight).dtype == torch.bfloat16
    assert (loss.dtype, loss.requires_grad) == (torch.float32, True)


@pytest.mark.parametrize("name", ["compare", "evaluate", "pretrain", "reproduce", "sample", "search", "sweep"])
def test_whatever_computes_leaves_torch_as_it_was(name: str) -> None:
    """dataxid-python#187, pyaptamer#531."""
    assert "as_before()" in inspect.getsource(getattr(ebclab, name))


def test_composing_settings_leaves_the_environment_as_it_was() -> None:
    before = dict(os.environ)
    compose_for_user("simclr", overrides=["resources.threads=1"])
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("change", "usual", "sentence"),
    [
        (torch.set_default_dtype, torch.float32, "^torch: new tensors must be float32, got torch.float64; call"),
        (torch.set_default_device, None, r"^torch: new tensors must be on the CPU, got meta; call torch.set_default"),
    ],
)
def test_other_tensors_than_torch_makes_unasked_are_refused(change: Any, usual: Any, sentence: str) -> None:
    change(torch.float64 if usual else "meta")
    try:
        with pytest.raises(UserError, match=sentence):
            resolve_device("cpu")
        with pytest.raises(UserError, match=sentence), as_before():
            raise AssertionError("images would be read first")
    finally:
        change(usual)


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine of four cores of which this process may use three; the numbers of threads that torch was given."""
    given: list[int] = []
    monkeypatch.setattr(device.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda process: {0, 2, 3})
    monkeypatch.setattr(device.torch, "set_num_threads", given.append)
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(name, raising=False)
    return given


def test_cores_are_counted_where_processes_have_no_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where `os.sched_getaffinity` is absent."""
    monkeypatch.setattr(device, "CONTROL_GROUPS", tmp_path)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 7, raising=False)
    assert device.usable_processors() == 7


CPU_TIMES: list[tuple[str, dict[str, str], int]] = [
    # version 2 of cgroups; ollama#17916, lilbee#660: a thread more than the quota is slower than one less
    ("0::/", {"cpu.max": "200000 100000"}, 2),
    ("0::/", {"cpu.max": "50000 100000"}, 1),
    ("0::/", {"cpu.max": "290000 100000"}, 2),
    ("0::/", {"cpu.max": "max 100000"}, 3),
    ("0::/", {"cpu.max": "900000 100000"}, 3),
    ("0::/", {"cpu.max": ""}, 3),
    # a unit of systemd, a step of Slurm: the quota is at one of the groups around the process
    ("0::/user.slice/job/step", {"user.slice/cpu.max": "200000 100000", "user.slice/job/cpu.max": "max 100000"}, 2),
    ("0::/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "100000 100000"}, 1),
    # version 1: a file each, in hierarchies that may be joined
    ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
    ("4:cpu,cpuacct:/docker/1f", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ("4:cpuacct,cpu:/x", {"cpu/x/cpu.cfs_quota_us": "100000", "cpu/x/cpu.cfs_period_us": "50000"}, 2),
    ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 3),
]


@pytest.mark.parametrize(("groups", "files", "expected"), CPU_TIMES)
def test_no_more_threads_than_control_groups_have_time_for(groups, files, expected, four_cores, told):
    """skypilot#8293, ray#63685."""
    (told / "cgroup").write_text(f"{groups}\n")
    for name, text in files.items():
        (told / name).parent.mkdir(parents=True, exist_ok=True)
        (told / name).write_text(f"{text}\n")
    assert set_threads(0) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [("2", 2), ("2,4", 2), ("9", 3), ("0", 3), ("all", 3), ("", 3), ("2 SLURM", 2), ("1 SLURM", 1)],
)
def test_no_more_threads_than_the_variables_of_openmp_and_slurm_say(variables, expected, four_cores, monkeypatch):
    """Jobs that share a machine by these variables alone."""
    value, _, of_slurm = variables.partition(" ")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK" if of_slurm else "OMP_NUM_THREADS", value)
    assert set_threads(0) == expected
    assert set_threads(4) == 4


@pytest.mark.parametrize("count", [4, None])
@pytest.mark.parametrize("name", ["cpu_count", "process_cpu_count"])
def test_where_no_affinity_is_known_all_cores_are_usable(name, count, four_cores, monkeypatch):
    monkeypatch.delattr(device.os, "sched_getaffinity")
    monkeypatch.delattr(device.os, "process_cpu_count", raising=False)  # there since Python 3.13
    monkeypatch.setattr(device.os, name, lambda: count, raising=False)
    assert set_threads(0) == (count or 1)


@pytest.mark.parametrize(("count", "usual", "expected"), [(0, 0, 3), (0, 2, 2), (0, 9, 9), (1, 2, 1), (4, 0, 4)])
def test_threads_are_those_of_the_setting_then_the_usual_then_the_cores(count, usual, expected, four_cores):
    assert set_threads(count, usual) == expected
    assert four_cores == [expected]


def test_more_threads_than_cores_are_refused_before_torch_sees_them(four_cores: list[int]) -> None:
    assert num_cores() == 4
    sentence = "^resources.threads: more than the 4 cores of this machine, got 5; use at most 4, or 0$"
    with pytest.raises(UserError, match=sentence):
        set_threads(5)
    assert four_cores == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["resources.device=cuda:1"], "resources.device: not a type of device, got 'cuda:1'"),
        (
            ["resources.device=xpu", "resources.workers=2"],
            "resources.device: Ray places processes on cpu or cuda alone, got xpu",
        ),
    ],
)
def test_a_device_that_no_run_can_have_is_refused_with_the_settings(settings: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        compose("simclr", overrides=settings)
