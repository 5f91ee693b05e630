"""What several processes of this suite need is made by the first that asks; the others wait for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of this session of tests that ``make`` has filled in one of its processes.

    Args:
        folders: pytest's own ``tmp_path_factory``.
        name: Of the folder.
        make: Fills an empty folder; called once, unless it raised.
    """
    own = folders.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            begun = shared / f"{name}.{os.getpid()}"
            begun.mkdir()
            make(begun)
            begun.rename(folder)
    return folder
