"""The kinds of folders that a process works in, with the names of the files by which others know them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of folder."""

    name: str  # its name, for messages
    settings: str  # file that makes a folder one of this kind; deleted last
    result: str  # file that exists only when the work has finished; written and uploaded last, deleted first
    busy: str  # activity of the process that holds the folder, for messages
    option: str  # command-line option that selects another parent folder, for messages
    log: str = ""  # file to which lines are appended; empty if there is none
    inside: str = ""  # direct subfolder that other processes sync; empty if there is none
    chosen_by: str = "--name"  # command-line option that selects another folder, for messages
    leftover: str = ""  # file or folder that may be there before the settings; empty if there is none
    command: str = ""  # the command that makes one, for messages

    @property
    def files(self) -> set[str]:
        """Settings, result and log."""
        return {self.settings, self.result, self.log} - {""}


RUN = Kind(
    "run",
    "config.yaml",
    "result.json",
    "is training in this folder",
    "--runs",
    log="metrics.jsonl",
    leftover="error.txt",
    command="pretrain",
)
SWEEP = Kind(
    "sweep",
    "sweep.yaml",
    "result.json",
    "works on this sweep",
    "--sweeps",
    log="trials.jsonl",
    inside="trials",
    command="sweep",
)
COMPARISON = Kind(
    "comparison",
    "comparison.yaml",
    "comparison.json",
    "works on this comparison",
    "--comparisons",
    inside="sweeps",
    leftover="sweeps/pilot",
    command="compare",
)
REPRODUCTION = Kind(
    "reproduction", "plan.json", "table.json", "works on this reproduction", "--to", inside="runs", chosen_by="--to"
)
KINDS = {kind.name: kind for kind in (RUN, SWEEP, COMPARISON, REPRODUCTION)}

RESULTS = {kind.result for kind in KINDS.values()}
"""Files that are uploaded after all others of their folder."""

SEGMENTED = (SWEEP.log,)
"""Logs that are only appended to, and so often that a store gets them in parts; a run's log may be rewritten."""
