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

    def tell(self, act: Callable[[list[str]], None]) -> None:
        """Call ``act`` with the names of draining machines that are new; they are until it has returned.

        Queries Ray at most every 2 s.
        """
        if time.monotonic() - self._polled < _PAUSE:
            return
        self._polled = time.monotonic()
        if draining := set(ray._private.state.state.get_draining_nodes()) - self._known:
            nodes = ray.nodes()  # type: ignore[no-untyped-call]
            names = {node["NodeID"]: node["NodeManagerHostname"] for node in nodes}
            act(sorted(names.get(node, node) for node in draining))
            self._known |= draining


@contextmanager
def on_drain(act: Callable[[list[str]], None]) -> Iterator[None]:
    """Call ``act`` in a background thread with the names of machines that start to drain."""
    notices = Notices()
    with repeating(
        lambda: notices.tell(act), _PAUSE, "the question which machines will be taken away"
    ):  # continues after an error: the next notice must still be seen
        yield
