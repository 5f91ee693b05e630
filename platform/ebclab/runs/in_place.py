"""Notices if a run's folder, or its folder of checkpoints, is removed, renamed or replaced while it trains."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.errors import TrainingError
from ebclab.storage.own_folder import OpenFolder


@contextmanager
def in_place(*folders: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that raises if one of ``folders`` is no longer the same folder as at the start of the block.

    Call it before every write: otherwise a missing folder would be created again, or another one damaged. A disk error
    within the block that has this cause is reported in the same way.
    """
    own = {folder: OpenFolder.at(folder) for folder in folders}

    def require() -> None:
        for folder, opened in own.items():
            if opened is None or not opened.is_at(folder):
                raise TrainingError(
                    f"{folder}: the folder was removed, renamed or replaced while this run trained in it, and the run "
                    "has stopped; put it back, and the same command resumes from its last checkpoint"
                )

    before = threading.excepthook

    def of_a_thread(thread: threading.ExceptHookArgs) -> None:
        """Ignore the error in TensorBoard's thread; the run's next record raises it again and reports it."""
        error = thread.exc_value
        file = os.fsdecode(error.filename or "") if isinstance(error, FileNotFoundError) else ""
        if not any(file.startswith(f"{folder}{os.sep}") for folder in folders):
            before(thread)

    threading.excepthook = of_a_thread
    try:
        yield require
    except OSError:
        require()
        raise
    finally:
        threading.excepthook = before
