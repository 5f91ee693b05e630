"""Has the workers of Ray that tests start forked by ``worker_server.py``, one for each process of the suite."""

import atexit
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SERVER = "EBCLAB_TESTS_WORKERS"
"""Environment variable with the path of the server's socket, which ``startup/sitecustomize.py`` reads."""

PATHS = "PYTHONPATH"
_before = os.environ.get(PATHS, "")
_offered = os.pathsep.join([str(HERE / "startup"), *filter(None, [_before])])


@cache
def _server() -> str:
    """Start the server, which ends when its input is closed, as it is with this process; return its socket's path."""
    path = os.path.join(tempfile.mkdtemp(prefix="ebc", dir="/tmp"), "workers")
    process = subprocess.Popen([sys.executable, HERE / "worker_server.py", path], stdin=subprocess.PIPE)

    def end() -> None:
        process.communicate()

    atexit.register(end)
    return path


def offer() -> None:
    """Let processes that are started from now on have Ray's workers forked."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch reads it before the fork, Ray would set it after
    os.environ[PATHS] = _offered
    os.environ[SERVER] = _server()


def withdraw() -> None:
    """Let them start their workers themselves."""
    if os.environ.pop(SERVER, None) is not None:
        os.environ[PATHS] = _before


def environment_without() -> dict[str, str]:
    """Return the environment of a process whose workers are its own children, and die with its group."""
    return {name: value for name, value in os.environ.items() if name != SERVER}
