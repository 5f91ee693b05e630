"""Seconds until the command line answers, and processor seconds of each command.

    python benchmarks/startup.py

Every command runs as a process of its own, as a person would start it; the median of several runs. The last one trains
for an epoch of three steps, so that nearly all of it is start and end. Beside each: the same command in a process that
collects garbage and ends as Python does by default.
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

OURS = [shutil.which("ebclab", path=str(Path(sys.executable).parent)) or "ebclab"]
USUAL = [sys.executable, "-c", "import sys; from ebclab.cli import main; sys.exit(main())"]


def measure(program: list[str], command: str, rounds: int) -> list[tuple[float, float]]:
    """Return wall seconds and processor seconds of each run, after one run that fills the file cache."""
    seconds = []
    for number in range(-1, rounds):
        with tempfile.TemporaryDirectory() as folder:
            words = [*command.split(), *(["--runs", folder] if command == RUN else [])]
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([*program, *words], capture_output=True, check=True)
            wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if number >= 0:
            seconds.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed runs of each command")
    rounds: int = parser.parse_args().rounds
    head = (
        "| command | seconds, median | fastest to slowest | of a processor | seconds as Python ends | of a processor |"
    )
    lines = [head, "|---|---|---|---|---|---|"]
    for command in (*COMMANDS, RUN):
        ours, usual = measure(OURS, command, rounds), measure(USUAL, command, rounds)
        wall = [seconds for seconds, _ in ours]
        medians = [statistics.median(column) for each in (ours, usual) for column in zip(*each, strict=True)]
        name = "pretrain simclr, three steps" if command == RUN else command
        row = [f"`ebclab {name}`", f"{medians[0]:.2f}", f"{min(wall):.2f} to {max(wall):.2f}"]
        lines.append(f"| {' | '.join([*row, *(f'{value:.2f}' for value in medians[1:])])} |")
    lines += ["", f"The last: `ebclab {RUN}`."]
    run = f"`python benchmarks/startup.py --rounds {rounds}`"
    write_page("startup", "Seconds until the command line answers", run, ("torch", "typer", "rich"), "\n".join(lines))


if __name__ == "__main__":
    main()
