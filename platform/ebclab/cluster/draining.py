"""Preemption notices of the cluster's machines; a run that receives one saves immediately."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
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

    def new(self) -> dict[str, str]:
        """Return the names, by id, of draining machines that were not seen yet; queries Ray at most every 2 s."""
        if time.monotonic() - self._polled < _PAUSE:
            return {}
        self._polled = time.monotonic()
        draining = set(ray._private.state.state.get_draining_nodes()) - self._known
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
        return {node: names.get(node, node) for node in draining}

    def seen(self, draining: Iterable[str]) -> None:
        """Leave machines, by their ids, out of what is new from now on."""
        self._known |= set(draining)


@contextmanager
def on_drain(act: Callable[[list[str]], None]) -> Iterator[None]:
    """Call ``act`` in a background thread with the names of machines that start to drain."""
    notices = Notices()

    def poll() -> None:
        if draining := notices.new():
            act(sorted(draining.values()))
            notices.seen(draining)  # only now: what failed is told again

    with repeating(
        poll, _PAUSE, "the question which machines will be taken away"
    ):  # continues after an error: the next notice must still be seen
        yield
