"""Whether the head of the joined cluster is still there, and a sentence when it is not.

Ray waits for a head for a minute, mostly in calls that no exception and no signal reaches, then prints words of its own
and ends the process. Whoever watches here ends it earlier, and says why and how to go on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ebclab.cluster.address import who_answers
from ebclab.errors import TrainingError
from ebclab.storage.sync import repeating

_LOOK = 2.0  # seconds between looks
_PATIENCE = 30.0  # seconds; Ray's own are 60


class Showing(Protocol):
    """What is on the screen."""

    def stop(self) -> None: ...


class Head:
    """The head of a cluster, as it was when this process joined it.

    Args:
        address: HOST:PORT of its GCS.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._known = who_answers(address)
        self._heard = time.monotonic()

    def loss(self, *, patience: float = _PATIENCE) -> str:
        """Return in one sentence that the head is gone; nothing while it may be there.

        Args:
            patience: Seconds for which it may be silent.
        """
        found, now = who_answers(self._address), time.monotonic()
        if found is None:
            silent = now - self._heard
            return self._sentence(f"has not answered for {silent:.0f} s") if silent >= patience else ""
        self._heard = now
        if self._known and found and found != self._known:
            return self._sentence("is another one than before")
        self._known = self._known or found
        return ""

    def lost(self) -> TrainingError | None:
        """Return the error to raise when Ray has failed because the head is gone; None when it is still there."""
        sentence = self.loss(patience=0)
        return TrainingError(sentence) if sentence else None

    def _sentence(self, what: str) -> str:
        return (
            f"the cluster's head at {self._address} {what}; what was saved is kept: "
            "once the cluster is up, the same command goes on from there"
        )


@contextmanager
def watched_head(address: str, display: Showing) -> Iterator[Head]:
    """Yield the head at ``address``; end this process with a sentence and exit code 1 as soon as it is lost.

    Args:
        address: HOST:PORT of its GCS.
        display: What is on the screen then.
    """
    head = Head(address)

    def look() -> None:
        if sentence := head.loss():
            display.stop()
            print(f"error: {sentence}", file=sys.stderr, flush=True)
            os._exit(TrainingError.exit_code)  # Ray would, half a minute later; locks and leases end as in a kill

    with repeating(look, _LOOK):
        yield head
