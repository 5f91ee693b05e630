"""One start of Ray at a time: Ray gives a node 30 seconds to register; three clusters at once need longer."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_start_at_a_time() -> Iterator[None]:
    """Wait until no other process of this suite starts Ray; a process that dies gives its turn back."""
    with Path(tempfile.gettempdir(), "ebclab-tests-start-ray").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
