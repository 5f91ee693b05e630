"""Has the workers of Ray that tests start forked by ``worker_server.py``, one for each process of the suite."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SERVER = "EBCLAB_TESTS_WORKERS"
"""Environment variable with the path of the server's socket, which ``startup/sitecustomize.py`` reads."""


@cache
def _server() -> tuple[str, subprocess.Popen[bytes]]:
    """Start the server; return the path of its socket, and its process, which ends when its input is closed."""
    path = os.path.join(tempfile.mkdtemp(prefix="ebc", dir="/tmp"), "workers")
    return path, subprocess.Popen([sys.executable, HERE / "worker_server.py", path], stdin=subprocess.PIPE)


def offer() -> None:
    """Let processes that are started from now on have Ray's workers forked."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(HERE / "startup") not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "startup"), *filter(None, paths)])
    os.environ[SERVER] = _server()[0]


def withdraw() -> None:
    """Let them start their workers themselves."""
    os.environ.pop(SERVER, None)


def environment_without() -> dict[str, str]:
    """Return the environment of a process whose workers are its own, so that they can be killed as its group."""
    return {name: value for name, value in os.environ.items() if name != SERVER}
