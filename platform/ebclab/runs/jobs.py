"""How jobs that do not depend on each other are done: one after the other, on the machines of a cluster, or at once.

At once are runs of a study or searches of a comparison, each in a process of this machine.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, Protocol, TypeVar

from ebclab.errors import EbclabError, InterruptedRunError, TrainingError, UserError
from ebclab.runs.stop_request import StopFlag, stop_on_signals
from ebclab.terminal import say

Job = TypeVar("Job")
Result = TypeVar("Result")


class Each(Protocol):
    """Does jobs; yields each with its result or a user's error, in the order in which they end.

    A job whose process died is a TrainingError. All other errors are raised.
    """

    def __call__(
        self, function: Callable[[Job], Result], jobs: Sequence[Job], /
    ) -> Iterator[tuple[Job, Result | EbclabError]]: ...


def one_by_one(function: Callable[[Job], Result], jobs: Sequence[Job], /) -> Iterator[tuple[Job, Result | EbclabError]]:
    """Do jobs in this process, in their order."""
    for job in jobs:
        try:
            yield job, function(job)
        except UserError as error:
            yield job, error


class Kept(Generic[Result]):
    """Calls a function once for equal arguments; a copy in another process calls its own, once for many jobs."""

    def __init__(self, function: Callable[..., Result]) -> None:
        self._function, self._results = function, dict[Any, Result]()

    def __call__(self, *given: Any, **options: Any) -> Result:
        """Return the result."""
        key = given, frozenset(options.items())
        if key not in self._results:
            self._results[key] = self._function(*given, **options)
        return self._results[key]

    def __reduce__(self) -> tuple[type[Kept[Result]], tuple[Callable[..., Result]]]:
        """Return how pickle makes one in another process: without results."""
        return type(self), (self._function,)


_POLL_SECONDS = 0.5  # how often a request to stop is looked for


def work_at_once(
    work: Callable[[str], Result], names: Sequence[str], processes: int
) -> Iterator[tuple[str, Result | TrainingError]]:
    """Yield the result of ``work`` for each name as soon as it is known; an error that it raises is raised here.

    On the first SIGINT or SIGTERM, after an error, or if this process is killed, what is in progress saves and stops.

    Args:
        work: A function, or an object, that pickle can send to another process.

    Yields:
        A name with its result, or with an error if its process was killed.

    Raises:
        InterruptedRunError: A stop was requested.
    """
    left, flag = list(names), StopFlag()
    running: dict[Connection, tuple[str, SpawnProcess]] = {}
    with stop_on_signals(flag, partial(say, err=True)):
        try:
            while left or running:
                while left and len(running) < processes:
                    name = left.pop(0)
                    reader, process = _start(work, name)
                    running[reader] = (name, process)
                ready = wait(list(running), _POLL_SECONDS)
                for reader in [each for each in running if each in ready]:
                    name, process = running.pop(reader)
                    yield name, _result(reader, process)
                if flag.is_set:
                    raise InterruptedRunError("stopped by request; the same command resumes")
        finally:
            for _, process in running.values():
                process.terminate()
            for reader, (_, process) in running.items():
                process.join()
                reader.close()


def _start(work: Callable[[str], Any], name: str) -> tuple[Connection, SpawnProcess]:
    """Start a process that works on a name; return the connection on which its result arrives."""
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(work, name, writer))
    process.start()
    writer.close()
    return reader, process


def _child(work: Callable[[str], Any], name: str, writer: Connection) -> None:
    os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent alone, which asks this process to stop once
    parent = multiprocessing.parent_process()

    def stop_with_parent() -> None:
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    try:
        writer.send((work(name), None))
    except EbclabError as error:
        writer.send((None, error))
    except KeyboardInterrupt:  # where nothing waits for a request to stop
        sys.exit(InterruptedRunError.exit_code)


def _result(reader: Connection, process: SpawnProcess) -> Any:
    with reader:
        try:
            result, error = reader.recv()
        except EOFError:
            process.join()
            code = process.exitcode or 0
            how = f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with code {code}"
            killed = ", as when the system kills it for want of memory; use fewer at once (--at-once)"
            return TrainingError(f"its process {how}{killed * (code == -signal.SIGKILL)}; the same command resumes")
    process.join()
    if error is not None:
        raise error
    return result
