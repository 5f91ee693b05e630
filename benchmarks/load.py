"""Seconds and memory of much: 5,000 runs listed, a million lines of metrics, a sweep of 1,000 trials, 2,000 epochs.

    python benchmarks/load.py [--only runs|metrics|sweep|epochs]

The folders are made of one real run and one real sweep of this machine: runs are copies under other names, whose large
files are links to one file; the log of metrics has the real run's lines many times; the sweep's log goes on with trials
made up in the form of its own. Every command is a process of its own, with what it reads in the page cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from page import exit_code, write_page
from sweep_start import generated_trial

TINY = ["data.train_limit=256", "training.batch_size=128", "optimizer.warmup_epochs=0", "resources.threads=1"]
SMALL_FILE = 100_000  # bytes; larger ones are linked


class Measured(NamedTuple):
    """What one command took."""

    seconds: float
    processor: float
    megabytes: float


class Row(NamedTuple):
    """A line of the table; the medians of seconds and megabytes must not exceed their goals, if there are any."""

    what: str
    found: list[Measured]
    seconds: float = math.inf
    megabytes: float = math.inf

    def against_goals(self) -> list[tuple[str, float, float]]:
        """Return what was measured, the median and the goal, for seconds and for megabytes."""
        seconds, _, megabytes = (statistics.median(numbers) for numbers in zip(*self.found, strict=True))
        return [(f"{self.what}, s", seconds, self.seconds), (f"{self.what}, MB", megabytes, self.megabytes)]

    def text(self) -> str:
        """Return the line as markdown."""
        seconds, processor, megabytes = zip(*self.found, strict=True)
        goals = (self.seconds, "s"), (self.megabytes, "MB")
        goal = ", ".join(f"{number:g} {unit}" for number, unit in goals if number < math.inf)
        middle = statistics.median(seconds)
        told = [f"{middle:.1f} ({min(seconds):.1f} to {max(seconds):.1f})", f"{statistics.median(processor):.1f}"]
        return f"| {' | '.join([self.what, *told, f'{statistics.median(megabytes):,.0f}', goal])} |"


def ebclab(*words: str) -> Measured:
    """Run a command of ebclab in its own process; return its wall seconds, start-up included, and its peak memory."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        command = subprocess.Popen([sys.executable, "-m", "ebclab", *words], stdout=output, stderr=output)
        _, status, used = os.wait4(command.pid, 0)
        seconds = time.perf_counter() - began
        command.returncode = os.waitstatus_to_exitcode(status)
        if command.returncode:
            output.seek(0)
            raise RuntimeError(f"ebclab {' '.join(words)}: exit code {command.returncode}\n{output.read()}")
    return Measured(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def settings(epochs: int) -> list[str]:
    """Return the options of a run of a second or two."""
    chosen = [word for text in [*TINY, f"training.epochs={epochs}"] for word in ("--set", text)]
    return ["--recipe", "digits-demo", *chosen]


def copied(source: Path, target: Path) -> None:
    """Copy a folder; large files are links to the same file."""

    def copy(file: str, to: str) -> None:
        if os.path.getsize(file) > SMALL_FILE:
            os.link(file, to)
        else:
            shutil.copy2(file, to)

    shutil.copytree(source, target, copy_function=copy)


def runs(place: Path, count: int, rounds: int) -> list[Row]:
    """Measure the list of ``count`` runs, of which each fifth is unfinished."""
    ebclab("pretrain", "flatclr", *settings(2), "--runs", str(place / "runs"), "--name", "0000")
    for number in range(1, count):
        copied(place / "runs" / "0000", place / "runs" / f"{number:04d}")
        if number % 5 == 0:
            (place / "runs" / f"{number:04d}" / "result.json").unlink()
    words = ["runs", "list", "--runs", str(place / "runs")]
    ebclab(*words)
    found = [ebclab(*words) for _ in range(rounds)]
    return [Row(f"`runs list`, {count:,} runs", found, seconds=2)]


def metrics(place: Path, lines: int, rounds: int) -> list[Row]:
    """Measure a resume after the first of two epochs: with the run's own log of metrics, and with ``lines`` lines."""
    source = place / "source"
    ebclab(
        "pretrain", "flatclr", *settings(2), "--set", "training.log_every=1", "--runs", str(place), "--name", "source"
    )
    (source / "result.json").unlink()
    first, second = sorted((source / "checkpoints").glob("last-*"))
    shutil.rmtree(second)
    step = int(first.name.removeprefix("last-"))
    log = (source / "metrics.jsonl").read_text().splitlines(keepends=True)
    begin = [line for line in log if json.loads(line)["step"] <= step]
    train = next(line for line in begin if json.loads(line)["kind"] == "train")
    rows, found = [], dict[str, list[Measured]]()
    for name, content in (("own", [*log]), ("long", [begin[0], *[train] * lines, *begin[1:], *log[len(begin) :]])):
        (source / "metrics.jsonl").write_text("".join(content))
        for number in range(rounds):
            copied(source, place / f"{name}{number}")
            shutil.copy2(source / "metrics.jsonl", place / f"{name}{number}" / "copy")  # no link: the log is written to
            (place / f"{name}{number}" / "copy").replace(place / f"{name}{number}" / "metrics.jsonl")
            words = ["--set", "training.log_every=1", "--runs", str(place), "--name", f"{name}{number}", "--resume"]
            found.setdefault(name, []).append(ebclab("pretrain", "flatclr", *settings(2), *words))
    base, long = found["own"], found["long"]
    more = _more(long, base)
    rows.append(Row(f"`pretrain --resume`, {len(log)} lines of metrics", base))
    rows.append(Row(f"`pretrain --resume`, {lines:,} lines of metrics", long))
    rows.append(Row("what these lines add", more, seconds=2, megabytes=200))
    return rows


def sweep(place: Path, trials: int, rounds: int) -> list[Row]:
    """Measure the resume of a sweep of ``trials`` trials of 20 epochs with two new ones, all included."""
    from ebclab.sweeps.folder import SweepFolder
    from ebclab.sweeps.policies.suggest import suggest

    space = Path(__file__).parents[1] / "search_spaces" / "examples" / "digits.yaml"
    words = ["sweep", "flatclr", *settings(20), "--sweeps", str(place), "--space", str(space), "--top", "0", "--name"]
    ebclab(*words, "source", "--trials", "2")
    folder = SweepFolder(place / "source")
    plan = folder.read_plan()
    few = _resumed(place, words, 2, rounds)
    with folder.log.open("a") as log:
        for number in range(2, trials):
            point = suggest(plan.space, "random", seed=0, number=number, trials=[], default=None)
            generated_trial(log, number, point, plan.space.settings(point))
            copied(folder.trials / "0001", folder.trials / f"{number:04d}")
    ebclab(*words, "source", "--trials", f"{trials}", "--resume")
    many = _resumed(place, words, trials, rounds)
    return [
        Row("`sweep --resume`, two trials and two new ones, start of Ray and training included", few),
        Row(f"the same with {trials:,} trials, beside which new ones may be stopped sooner", many, seconds=10),
    ]


def epochs(place: Path, count: int, rounds: int) -> list[Row]:
    """Measure runs of a twentieth of the epochs and of all: what they hold in memory, and add to their folders."""
    shared = ["encoder.width=4", "training.batch_size=32", "data.train_limit=64", "evaluation.knn_neighbours=5"]
    found, sizes = dict[int, list[Measured]](), dict[int, int]()
    for number in (count // 20, count):
        for turn in range(rounds):
            words = [*settings(number), *(word for text in shared for word in ("--set", text))]
            name = f"{number}-{turn}"
            found.setdefault(number, []).append(
                ebclab("pretrain", "simclr", *words, "--runs", str(place), "--name", name)
            )
            sizes[number] = sum(file.stat().st_size for file in (place / name).rglob("*") if file.is_file())
    few, many = found.values()
    more = (sizes[count] - sizes[count // 20]) / (count - count // 20) / 1000
    said = f"what the others add, {more:.1f} kB an epoch in the folder among it"
    return [
        Row(f"`pretrain`, {count // 20:,} epochs of a step", few),
        Row(f"`pretrain`, {count:,} epochs of a step", many),
        Row(said, _more(many, few), megabytes=20),
    ]


def _more(some: list[Measured], others: list[Measured]) -> list[Measured]:
    """Return the differences, round by round."""
    return [Measured(*(a - b for a, b in zip(*pair, strict=True))) for pair in zip(some, others, strict=True)]


def _resumed(place: Path, words: list[str], trials: int, rounds: int) -> list[Measured]:
    """Measure how copies of the sweep ``source`` go on with two more trials."""
    found = []
    for number in range(rounds):
        name = f"{trials}-{number}"
        copied(place / "source", place / name)
        found.append(ebclab(*words, name, "--trials", f"{trials + 2}", "--resume"))
    return found


PARTS: dict[str, Callable[[Path, int, int], list[Row]]] = {
    "runs": runs,
    "metrics": metrics,
    "sweep": sweep,
    "epochs": epochs,
}
SIZES = {"runs": 5000, "metrics": 1_000_000, "sweep": 1000, "epochs": 2000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*PARTS], help="measure this and print it; no page is written")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each command")
    asked = parser.parse_args()
    rows: list[Row] = []
    for name in [asked.only] if asked.only else PARTS:
        with tempfile.TemporaryDirectory() as place:
            found = PARTS[name](Path(place), SIZES[name], asked.rounds)
            print(*(row.text() for row in found), sep="\n", flush=True)
            rows += found
    table = ["| command | seconds: median (least to most) | of the processor | peak memory, MB | goal |"]
    table += ["|---|---|---|---|---|"]
    table += [row.text() for row in rows]
    beyond = exit_code(measured for row in rows for measured in row.against_goals())
    if asked.only:
        print("\n".join(table))
        return beyond
    run = f"`python benchmarks/load.py --rounds {asked.rounds}`"
    write_page(
        "load", "With much on the disk, and of many epochs", run, ("ebclab", "torch", "ray", "optuna"), "\n".join(table)
    )
    return beyond


if __name__ == "__main__":
    sys.exit(main())
