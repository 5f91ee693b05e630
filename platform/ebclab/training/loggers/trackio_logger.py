"""Trackio: logs to a database in ``TRACKIO_DIR``, or wherever its own environment variables point."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from contextlib import redirect_stdout

import trackio

from ebclab.training.loggers.run_logger import PROJECT, Ending, LoggedRun


class TrackioLogger:
    """A run in Trackio, which identifies runs by name: a few digits distinguish runs of the same name.

    Args:
        identity: Name of the run of an earlier launch; empty makes a new one.
    """

    def __init__(self, run: LoggedRun, identity: str) -> None:
        self._name = identity or f"{run.name}-{uuid.uuid4().hex[:8]}"
        with redirect_stdout(sys.stderr):  # it prints where it logs
            self._run = trackio.init(
                PROJECT,
                name=self._name,
                group=run.sweep or None,
                config=dict(run.settings),
                resume="allow",
                embed=False,
            )

    @property
    def identity(self) -> str:
        """Name of the run."""
        return self._name

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Hand the numbers of a step to trackio's own thread."""
        self._run.log(dict(values), step=step)

    def close(self, ending: Ending) -> None:
        """Wait until all is written or sent."""
        with redirect_stdout(sys.stderr):
            self._run.finish()
