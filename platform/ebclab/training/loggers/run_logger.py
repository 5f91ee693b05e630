"""The interface of a logger, and what it receives about the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

PROJECT = "ebclab"
"""Name of the project or experiment if the library's own environment variable does not name one."""

Ending = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class LoggedRun:
    """A run as a logger shows it."""

    name: str  # name of its folder
    sweep: str  # name of the sweep that it is a trial of; empty for a run of its own
    folder: Path  # its folder, in which a library may keep files of its own
    settings: Mapping[str, Any]  # its settings by dotted key


class RunLogger(Protocol):
    """One run in a logger. An error that it raises ends the logger, not the run."""

    @property
    def identity(self) -> str:
        """Id or name by which the library finds the run again when it is resumed."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step."""

    def close(self, ending: Ending) -> None:
        """Send what is left, and report how this launch ended."""
