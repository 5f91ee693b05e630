"""Seconds until the command line answers.

    python benchmarks/startup.py

Every command runs as a process of its own, as a person would start it; the median of several runs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from page import write_page

COMMANDS = ("--help", "pretrain --help", "data list", "show --recipes", "show simclr")


def measure(command: str, rounds: int) -> list[float]:
    """Return wall seconds of each run, after one run that fills the file cache."""
    program = shutil.which("ebclab", path=str(Path(sys.executable).parent)) or "ebclab"
    seconds = []
    for number in range(-1, rounds):
        start = time.perf_counter()
        subprocess.run([program, *command.split()], capture_output=True, check=True)
        if number >= 0:
            seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed runs of each command")
    rounds: int = parser.parse_args().rounds
    lines = ["| command | seconds, median | fastest to slowest |", "|---|---|---|"]
    for command in COMMANDS:
        values = measure(command, rounds)
        median = statistics.median(values)
        lines.append(f"| `ebclab {command}` | {median:.2f} | {min(values):.2f} to {max(values):.2f} |")
    run = f"`python benchmarks/startup.py --rounds {rounds}`"
    write_page("startup", "Seconds until the command line answers", run, ("torch", "typer", "rich"), "\n".join(lines))


if __name__ == "__main__":
    main()
