"""Notices that a machine will be taken away: whoever hears of one has its runs save at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

from ebclab.background import repeating

_PAUSE = 2.0  # seconds between looks


class Notices:
    """Machines of the joined cluster that will be taken away, each told once.

    Ray knows of them from ``ray drain-node``, from its autoscaler, and from a SIGTERM to a node's own processes.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._looked = 0.0

    def new(self) -> list[str]:
        """Return the names of machines that were not on notice before; looked up every few seconds."""
        if time.monotonic() - self._looked < _PAUSE:
            return []
        self._looked = time.monotonic()
        found = set(ray._private.state.state.get_draining_nodes()) - self._known
        self._known |= found
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
        return sorted(names.get(node, node) for node in found)


@contextmanager
def on_drain(act: Callable[[list[str]], None]) -> Iterator[None]:
    """Call ``act`` with the names of machines as they come on notice, in a thread of its own."""
    notices = Notices()

    def look() -> None:
        if names := notices.new():
            act(names)

    with repeating(look, _PAUSE):  # the next notice must be heard, whatever becomes of this one
        yield
