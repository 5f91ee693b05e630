"""Asks the server of forked workers to put a fork in this process's place."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket


def have_it_forked(server: str, command: list[str]) -> None:
    """End this process when the server has forked the worker that it was to become; return when it has not.

    Args:
        server: Path of its socket.
        command: How this process was started: Python, the worker's script and its options; or Ray's
            ``setup_worker.py`` before these, which gives a worker the environment that was asked for.
    """
    environment = dict(os.environ)
    if command[1].endswith("setup_worker.py"):
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--serialized-runtime-env-context", default="{}")
        parser.add_argument("--language")
        own, worker = parser.parse_known_args(command[2:])
        context = json.loads(own.serialized_runtime_env_context)
        variables = context.pop("env_vars", {})
        python = context.pop("py_executable", command[0])
        if own.language != "PYTHON" or any(context.values()) or "$" in "".join(variables.values()):
            return  # it does more than that
        environment |= variables
        command = [python, *worker]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])  # Ctrl-C, below a process of Ray's
    os.umask(umask := os.umask(0))
    request = {"command": command, "folder": os.getcwd(), "environment": environment, "umask": umask}
    request |= {"blocked": [int(each) for each in blocked]}
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(server)
            socket.send_fds(connection, [b"."], [0, 1, 2])
            connection.sendall(json.dumps(request).encode())
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1)
        except OSError:  # the test process that had it has ended
            return
    if answer == b"y":
        os._exit(0)
