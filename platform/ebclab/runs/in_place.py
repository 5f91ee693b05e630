"""Notices that a run's folder, or that of its checkpoints, was removed, renamed or replaced while it trains."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.errors import TrainingError
from ebclab.open_folder import OpenFolder


@contextmanager
def in_place(*folders: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that raises once one of ``folders`` is no longer the folder that it is now.

    To be called before something is written: a missing folder would be made anew, and another one spoilt. An error of
    the disk within the block is told in the same way when this is why.

    Raises:
        TrainingError: The folder is gone, or another one lies there.
    """
    own = {folder: OpenFolder.at(folder) for folder in folders}

    def require() -> None:
        for folder, opened in own.items():
            if opened is None or not opened.is_at(folder):
                raise TrainingError(
                    f"{folder}: the folder was removed, renamed or replaced while this run trained in it, and the run "
                    "has stopped; put it back, and the same command goes on from its last checkpoint"
                )

    before = threading.excepthook

    def of_a_thread(thread: threading.ExceptHookArgs) -> None:
        """Leave it to the run to tell what TensorBoard's thread met first; the next record raises that error again."""
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
