"""Seconds until the command line answers, and processor seconds of each command.

    python benchmarks/startup.py

Every command runs as a process of its own, as a person would start it; the median of several runs. The last one trains
for an epoch of three steps, so that nearly all of it is start and end.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import write_page

TINY = "data.train_limit=400 training.epochs=1 training.batch_size=128 optimizer.warmup_epochs=0.1 resources.threads=1"
COMMANDS = ("--help", "pretrain --help", "data list", "show --recipes", "show simclr")
RUN = f"pretrain simclr --recipe digits-demo {' '.join(f'--set {each}' for each in TINY.split())}"


def measure(command: str, rounds: int) -> list[tuple[float, float]]:
    """Return wall seconds and processor seconds of each run, after one run that fills the file cache."""
    program = shutil.which("ebclab", path=str(Path(sys.executable).parent)) or "ebclab"
    seconds = []
    for number in range(-1, rounds):
        with tempfile.TemporaryDirectory() as folder:
            words = [*command.split(), *(["--runs", folder] if command == RUN else [])]
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([program, *words], capture_output=True, check=True)
            wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if number >= 0:
            seconds.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed runs of each command")
    rounds: int = parser.parse_args().rounds
    lines = ["| command | seconds, median | fastest to slowest | processor seconds, median |", "|---|---|---|---|"]
    for command in (*COMMANDS, RUN):
        wall, processor = zip(*measure(command, rounds), strict=True)
        middle, used = statistics.median(wall), statistics.median(processor)
        name = "pretrain simclr, three steps" if command == RUN else command
        lines.append(f"| `ebclab {name}` | {middle:.2f} | {min(wall):.2f} to {max(wall):.2f} | {used:.2f} |")
    lines += ["", f"The last: `ebclab {RUN}`."]
    run = f"`python benchmarks/startup.py --rounds {rounds}`"
    write_page("startup", "Seconds until the command line answers", run, ("torch", "typer", "rich"), "\n".join(lines))


if __name__ == "__main__":
    main()
