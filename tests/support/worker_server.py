"""Forks workers of Ray from a process that has imported what they all need, in place of starting each anew.

A worker's imports, torch and its compiler above all, take more of a processor than what most tests have it do. Nothing
of Ray is imported here, since Ray reads its switches when it is imported, and those differ from test to test. A worker
whose environment has another value of a variable that is read here is refused, and starts as it does for users.

Its socket is the first argument. It ends when its standard input does: with the process of the suite that started it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any, NoReturn

import numpy

IMPORTED = (
    *("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.utils.data"),
    *("torch.utils.tensorboard", "safetensors.torch", "PIL.Image", "pydantic", "yaml"),
    *("pandas", "pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet", "fsspec", "requests"),
    *("energy_contrast.catalog", "ebclab.training.setup", "ebclab.training.recorder"),
)

READ_HERE = (
    *("PYTHON", "LD_", "LC_", "LANG", "TZ", "ARROW_", "FSSPEC_", "TORCH", "PYTORCH_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_"),
)
"""Beginnings of the variables that Python and those libraries may have read by now."""

READ_LATER = ("PYTHONBREAKPOINT",)
"""Of those, what Ray sets in some drivers, and Python reads at a breakpoint alone."""

PATIENCE = 10.0
"""Seconds that a client may take to ask; it has nothing else to do."""


def main() -> None:
    read = _read_here(os.environ)  # before torch adds to it
    os.setsid()  # a terminal's Ctrl-C is not for workers
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a worker ended
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as either:
        listener.bind(sys.argv[1])
        listener.listen(64)  # who asks now waits until all is imported
        for name in IMPORTED:
            importlib.import_module(name)
        assert "ray" not in sys.modules
        gc.collect()
        gc.freeze()
        either.register(listener, selectors.EVENT_READ)
        either.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in either.select()):
            with listener.accept()[0] as connection, suppress(OSError, ValueError):  # clients may be killed
                connection.settimeout(PATIENCE)
                _answer(connection, listener, read)
    os.unlink(sys.argv[1])
    os.rmdir(os.path.dirname(sys.argv[1]))


def _answer(connection: socket.socket, listener: socket.socket, read: dict[str, str]) -> None:
    """Fork the worker that a client asks for; raise OSError or ValueError if the client is gone."""
    outputs: list[int] = []
    try:
        _, outputs, _, _ = socket.recv_fds(connection, 1, 3)
        with connection.makefile() as text:
            request = json.load(text)
        same = _read_here(request["environment"]) == read and request["command"][0] == sys.executable
        connection.sendall(b"y" if same else b"n")
        if same and os.fork() == 0:
            listener.close()
            connection.close()
            _be_a_worker(request, outputs)
    finally:
        for file in outputs:
            os.close(file)


def _read_here(environment: Any) -> dict[str, str]:
    used = (name for name in environment if name.startswith(READ_HERE) and name not in READ_LATER)
    return {name: environment[name] for name in used}


def _be_a_worker(request: dict[str, Any], outputs: list[int]) -> NoReturn:
    """Do what Python does for the script of a request, from start to end; what goes wrong is printed."""
    code = 0
    try:
        for target, file in enumerate(outputs):
            os.dup2(file, target)
            os.close(file)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)  # Ray ends a worker together with its group
        signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
        os.chdir(request["folder"])
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["environment"])
        numpy.random.seed()  # Python's own generator is seeded anew by the fork
        sys.argv = request["command"][1:]
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as Python does before exit functions
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
