"""What a logger is to a run, and what it is told of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

PROJECT = "ebclab"
"""Name of the project or experiment where the library's own variable names none."""

Ending = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class LoggedRun:
    """A run as a logger shows it.

    Attributes:
        name: Name of its folder.
        sweep: Name of the sweep of which it is a trial; empty for a run by itself.
        folder: Its folder, where a library may keep files of its own.
        settings: Its settings by dotted key.
    """

    name: str
    sweep: str
    folder: Path
    settings: Mapping[str, Any]


class RunLogger(Protocol):
    """One run in a logger. Whatever it raises ends it, and not the run."""

    @property
    def identity(self) -> str:
        """What the library finds the run by, when the run is resumed."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step."""

    def close(self, ending: Ending) -> None:
        """Send what is left, and how this launch ended."""
