"""The interface of a logger, and what it is told about the run."""

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
    """A run as a logger shows it.

    Attributes:
        name: Name of its folder.
        sweep: Name of the sweep that it is a trial of; empty for a run of its own.
        folder: Its folder, in which a library may keep files of its own.
        settings: Its settings by dotted key.
    """

    name: str
    sweep: str
    folder: Path
    settings: Mapping[str, Any]


class RunLogger(Protocol):
    """One run in a logger. An error that it raises ends the logger, not the run."""

    @property
    def identity(self) -> str:
        """Id or name by which the library finds the run again when it is resumed."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step."""

    def close(self, ending: Ending) -> None:
        """Send what is left, and report how this launch ended."""
