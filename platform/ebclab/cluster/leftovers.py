"""Ends what is left of a Ray instance of this machine after its driver; also the program that waits for that moment.

If the driver or the GCS is killed, Ray's agents remain for minutes, with open ports. This file is also run by its path,
without site-packages, so it imports the standard library only.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROCESSES = Path("/proc")
_GRACE_SECONDS = 5.0  # Ray's own processes end by themselves in this time, or not at all
_END_SECONDS = 20.0
_POLL_SECONDS = 0.5
_START = 19  # index of the start time in /proc/PID/stat after the name of the program
_TITLE = "ray::"  # Ray's workers and agents replace their command line by one that starts with this


def end_leftovers(folder: Path, program: Path, since: int = 0, grace: float = 0.0) -> None:
    """End the processes of an instance, of the Ray that is installed in ``program``, and remove its folder.

    Args:
        since: Processes that started earlier are kept; in clock ticks since the start of the machine.
        grace: Seconds in which they may end by themselves.
    """
    give_up = time.monotonic() + grace
    while time.monotonic() < give_up and any(_processes(folder, program, since)):
        time.sleep(0.1)
    give_up = time.monotonic() + _END_SECONDS
    while True:  # until none is left, since one may have started another
        left = False
        for process in _processes(folder, program, since):
            left = True
            with suppress(OSError):  # it has ended in the microseconds since it was looked at
                os.kill(process, signal.SIGKILL)
        if not left:
            break
        if time.monotonic() > give_up:
            return
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def _processes(folder: Path, program: Path, since: int) -> Iterator[int]:
    """Yield the numbers of Ray's processes of the instance with this folder."""
    for place in PROCESSES.iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid() and _belongs(place, folder, program, since):
            yield int(place.name)


def _belongs(process: Path, folder: Path, program: Path, since: int) -> bool:
    """Return whether a process is this user's, young enough, a program of Ray, and works in the instance's folder."""
    try:
        if process.stat().st_uid != os.geteuid() or start_time(process) < since:
            return False
        command = os.fsdecode((process / "cmdline").read_bytes())
        if command.startswith(_TITLE):
            return any(os.readlink(file).startswith(f"{folder}/") for file in (process / "fd").iterdir())
        return f"{program}/" in command and str(folder) in command
    except (OSError, ValueError, IndexError):  # it has ended meanwhile
        return False


def start_time(process: Path) -> int:
    """Return when a process started, in clock ticks since the start of the machine."""
    return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[_START])


def watch(folder: Path, program: Path, driver: int) -> None:
    """Wait until the process that started this one has ended or writes to its input, then end what is left."""
    since = start_time(PROCESSES / "self")
    while os.getppid() == driver:  # also if a forked child of the driver holds the pipe open
        if select.select([sys.stdin], [], [], _POLL_SECONDS)[0]:
            break
    end_leftovers(folder, program, since, _GRACE_SECONDS)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
