"""How a process died is told by what it leaves: the signal and the line, or nothing at all."""

import os
import signal
from pathlib import Path

import pytest

from ebclab import hardware
from ebclab.runs import death
from ebclab.runs.death import how_it_died, watched

FATAL = [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE]
NO_TRACE = (
    ": without a trace, as when a library ends it, or when killed (SIGKILL), as the kernel does if memory is short"
)
OUT_OF_MEMORY = ": without a trace; since it began, the kernel ran out of memory here and killed a process (SIGKILL)"


def _died(folder: Path, number: int, rank: int = 0) -> str:
    """Return the number of a process that a signal ended while it was watched."""
    child = os.fork()
    if not child:
        try:
            with watched(folder, rank):
                signal.raise_signal(number)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == number
    return str(child)


@pytest.fixture
def kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the kernel counts the processes that it has killed: two so far."""
    monkeypatch.setattr(hardware, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(hardware, "OWN_GROUPS", tmp_path / "own")
    (tmp_path / "own").write_text("0::/job\n")
    (tmp_path / "job").mkdir()
    counts = tmp_path / "job" / "memory.events"
    counts.write_text("oom 9\noom_kill 2\n")
    return counts


@pytest.mark.parametrize("number", FATAL)
def test_a_fatal_signal_is_told_with_the_line_at_which_the_process_was(tmp_path: Path, number: signal.Signals) -> None:
    pid = _died(tmp_path / ".ray", number, rank=3)
    lines = Path(__file__).read_text().splitlines()
    (line,) = (place for place, text in enumerate(lines, start=1) if text.strip() == "signal.raise_signal(number)")
    told = f": {signal.strsignal(number)} ({number.name}) in _died ({__file__}, line {line})"
    assert how_it_died(tmp_path / ".ray", 3, pid) == told
    assert how_it_died(tmp_path / ".ray", 3, f"{pid}0") == ""
    assert how_it_died(tmp_path / ".ray", 2, pid) == ""


def test_that_the_kernel_ran_out_of_memory_is_told_where_its_count_has_risen_here(kills, tmp_path, monkeypatch):
    pid = _died(tmp_path, signal.SIGKILL)
    assert how_it_died(tmp_path, 0, pid) == NO_TRACE
    kills.write_text("oom 10\noom_kill 3\n")
    assert how_it_died(tmp_path, 0, pid) == OUT_OF_MEMORY
    (tmp_path / "own").write_text("0::/\n")
    kills.rename(tmp_path / "memory.events")  # of another group, whose count says nothing
    assert how_it_died(tmp_path, 0, pid) == NO_TRACE
    monkeypatch.setattr(death.socket, "gethostname", lambda: "elsewhere")
    (tmp_path / "memory.events").rename(kills)
    (tmp_path / "own").write_text("0::/job\n")
    assert how_it_died(tmp_path, 0, pid) == NO_TRACE


def test_a_process_that_ends_leaves_nothing_that_would_be_told_of_another(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        try:
            with watched(tmp_path):
                assert (tmp_path / "worker-0.fault").exists()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "worker-0.json").exists()
    assert how_it_died(tmp_path, 0, str(child)) == ""


def test_what_is_in_the_place_of_the_file_is_replaced_and_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "worker-0.fault").symlink_to(tmp_path / "mine")
    pid = _died(tmp_path, signal.SIGABRT)
    assert "SIGABRT" in how_it_died(tmp_path, 0, pid)
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"pid": 7, "host": "a", "ranks": 1, "kernel_kills": {"g": "x"}}']
)
def test_damaged_files_tell_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "worker-0.json").write_bytes(content)
    (tmp_path / "worker-0.fault").write_bytes(b"\xff" * 9999)
    assert how_it_died(tmp_path, 0, "7") == ""


def test_a_trace_that_is_no_text_of_python_says_no_signal(tmp_path: Path) -> None:
    (tmp_path / "worker-0.json").write_text('{"pid": 7, "host": "a", "ranks": 1, "kernel_kills": {}}')
    (tmp_path / "worker-0.fault").write_bytes(b"\xff" * 9999)
    assert how_it_died(tmp_path, 0, "7") == NO_TRACE
