"""Preemption notices of the cluster's machines; a run that receives one saves immediately."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

from ebclab.background import repeating

_PAUSE = 2.0  # seconds between polls


class Notices:
    """Machines of the joined cluster that are being drained, each reported once.

    Ray drains a node after ``ray drain-node``, on request of its autoscaler, and if its own processes receive
    SIGTERM.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._polled = 0.0

    def new(self) -> list[str]:
        """Return the names of machines that started to drain since the last call; queries Ray at most every 2 s."""
        if time.monotonic() - self._polled < _PAUSE:
            return []
        self._polled = time.monotonic()
        draining = set(ray._private.state.state.get_draining_nodes()) - self._known
        self._known |= draining
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
        return sorted(names.get(node, node) for node in draining)


@contextmanager
def on_drain(act: Callable[[list[str]], None]) -> Iterator[None]:
    """Call ``act`` in a background thread with the names of machines that start to drain."""
    notices = Notices()

    def poll() -> None:
        if names := notices.new():
            act(names)

    with repeating(
        poll, _PAUSE, "the question which machines will be taken away"
    ):  # continues after an error: the next notice must still be seen
        yield
