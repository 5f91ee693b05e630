"""Training with all processors, alone and beside another program that uses one.

    python benchmarks/busy_machine.py

Each run is a process of its own, in turns: as torch waits by itself, where threads that have nothing to do keep their
processors until the others are done, and with OMP_WAIT_POLICY=PASSIVE, where they sleep.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from page import write_page

RUN = "pretrain simclr --recipe digits-demo --set training.epochs=10"
PROGRAM = shutil.which("ebclab", path=str(Path(sys.executable).parent)) or "ebclab"
WAYS = {"as it is": {}, "`OMP_WAIT_POLICY=PASSIVE`": {"OMP_WAIT_POLICY": "PASSIVE"}}
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def train(variables: dict[str, str]) -> tuple[float, float]:
    """Return seconds of a whole command, and images a second of its training."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        words = [PROGRAM, *RUN.split(), "--runs", folder, "--name", "run"]
        subprocess.run(words, check=True, capture_output=True, env=environment | variables)
        seconds = time.perf_counter() - start
        return seconds, json.loads(Path(folder, "run", "result.json").read_text())["images_per_second"]["mean"]


@contextmanager
def beside(programs: int) -> Iterator[None]:
    """Keep so many processors busy until the block ends."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each kind")
    rounds: int = parser.parse_args().rounds
    lines = [
        "| | processes beside it | seconds, median | fastest to slowest | images/s, median |",
        "|---|---|---|---|---|",
    ]
    for programs in (0, 1):
        with beside(programs):
            measured = {way: list[tuple[float, float]]() for way in WAYS}
            for _ in range(rounds):
                for way, variables in WAYS.items():
                    measured[way].append(train(variables))
        for way, runs in measured.items():
            seconds, rates = zip(*runs, strict=True)
            spread, median = f"{min(seconds):.1f} to {max(seconds):.1f}", statistics.median(seconds)
            lines.append(f"| {way} | {programs} | {median:.1f} | {spread} | {statistics.median(rates):,.0f} |")
    lines += ["", f"`ebclab {RUN}`, {os.cpu_count()} threads."]
    run = f"`python benchmarks/busy_machine.py --rounds {rounds}`"
    write_page("busy_machine", "Training beside another program", run, ("torch",), "\n".join(lines))


if __name__ == "__main__":
    main()
