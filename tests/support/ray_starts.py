"""Starts of Ray, one at a time: it gives a node 30 seconds to register; three at once need longer. Its folders."""

import fcntl
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TURNS = Path(tempfile.gettempdir(), "ebclab-tests-start-ray")
"""Lock file: one process of the suite starts Ray at a time."""


@contextmanager
def one_start_at_a_time() -> Iterator[None]:
    """Wait until no other process of this suite starts Ray; a process that dies gives its turn back."""
    with TURNS.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def ray_started(arguments: str, environment: dict[str, str], **options: Any) -> Iterator[None]:
    """Let `ray start` run with these arguments, and end it."""
    command = [str(Path(sys.executable).with_name("ray")), "start", *arguments.split()]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def ray_folder() -> Iterator[Path]:
    """A folder for Ray's files, removed when no process writes into it any more: agents end some time after their head.

    Its path is short, since sockets lie in it, and theirs have at most 107 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="ebc", dir="/tmp"))
    try:
        yield folder
    finally:
        give_up = time.monotonic() + 120
        while users := users_of(folder):
            said = [f"{process} {command}" for process, command in users.items()]
            assert time.monotonic() < give_up, f"{folder}: still used by {said}"
            time.sleep(0.1)
        shutil.rmtree(folder)


def users_of(folder: Path) -> dict[int, str]:
    """Return the processes whose command line names a folder, or that hold a file in it open, and their commands."""
    import ray  # noqa: F401, I001, its wheel holds psutil
    import psutil

    users = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile, or is another user's
            words, files = process.cmdline(), (file.path for file in process.open_files())
            if any(str(folder) in word for word in words) or any(path.startswith(str(folder)) for path in files):
                users[process.pid] = " ".join(words)[:80]
    return users
