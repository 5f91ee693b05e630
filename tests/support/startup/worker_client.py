"""Asks the server of forked workers to put a fork in this process's place."""

from __future__ import annotations

import json
import os
import signal
import socket


def have_it_forked(server: str, command: list[str]) -> None:
    """End this process when the server has forked the worker that it was to become; return when it has not.

    Args:
        server: Path of its socket.
        command: How this process was started: Python, the worker's script and its options.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])  # Ctrl-C, below a process of Ray's
    request = {"command": command, "folder": os.getcwd(), "environment": dict(os.environ)}
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
