"""How the process of a worker or of a trial died: on which signal and at which line, or killed from outside.

Python writes down a fatal signal itself (``faulthandler``); on SIGKILL nothing can be written.
"""

from __future__ import annotations

import faulthandler
import io
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ebclab.errors import RunError
from ebclab.hardware import kernel_kills
from ebclab.regular_file import open_regular, own_file
from ebclab.storage import atomic
from ebclab.storage.reading import read_typed

_FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_SIGNALS = {signal.strsignal(each): each.name for each in _FATAL}
_LARGEST, _READ = 1 << 20, 1 << 13  # bytes that the file may have, and that are read: the newest call comes first


@dataclass(frozen=True)
class _Process:
    """A process, in the file that names it."""

    pid: int
    host: str
    ranks: int  # processes of the run
    kernel_kills: dict[str, int]  # what ``kernel_kills`` returned when it began


@contextmanager
def watched(folder: Path, rank: int = 0, ranks: int = 1) -> Iterator[None]:
    """Write into ``folder`` who this process is and, if a fatal signal ends it, which one, and at which line."""
    who, trace = _files(folder, rank)
    atomic.make_folder(folder)
    atomic.write_json(who, asdict(_Process(os.getpid(), socket.gethostname(), ranks, kernel_kills())))
    was_enabled = faulthandler.is_enabled()
    trace.unlink(missing_ok=True)  # may be a link, in a folder that is somebody's
    with open(trace, "wb", opener=own_file) as file:
        faulthandler.disable()  # else the handlers would stay as they are, which others may have replaced
        faulthandler.enable(file, all_threads=False)
        try:
            yield
        finally:
            faulthandler.disable()
            trace.unlink(missing_ok=True)
            with suppress(io.UnsupportedOperation, RuntimeError, ValueError):  # the error output is no open file
                if was_enabled:
                    faulthandler.enable(all_threads=False)


def how_it_died(folder: Path, rank: int, pid: str) -> str:
    """Return how process ``pid`` died, after a colon; empty if no file of it is in ``folder`` on this machine."""
    who, trace = _files(folder, rank)
    try:
        process = read_typed(who, _Process)
        with open_regular(trace, _LARGEST) as file:
            text = file.read(_READ).decode(errors="replace")
    except (OSError, RunError):
        return ""
    if pid != str(process.pid):
        return ""
    if fault := re.search(r"^Fatal Python error: (.+)$", text, re.MULTILINE):
        at = re.search(r'^  File "(.+)", (line \d+) in (.+)$', text, re.MULTILINE)
        name = fault[1].replace("Floating-point", "Floating point")  # so written from Python 3.13 on
        short = f" ({_SIGNALS[name]})" if name in _SIGNALS else ""
        return f": {name}{short}" + (f" in {at[3]} ({at[1]}, {at[2]})" if at else "")
    now = kernel_kills() if process.host == socket.gethostname() else {}
    if any(count > process.kernel_kills.get(group, count) for group, count in now.items()):
        return ": without a trace; since it began, the kernel ran out of memory here and killed a process (SIGKILL)"
    return (
        ": without a trace, as when a library ends it, or when killed (SIGKILL), as the kernel does if memory is short"
    )


def _files(folder: Path, rank: int) -> tuple[Path, Path]:
    """Return the file that names a process, and the one that Python writes into on a fatal signal."""
    return folder / f"worker-{rank}.json", folder / f"worker-{rank}.fault"
