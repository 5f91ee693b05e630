"""Every method of the catalogue on one data set, with one recipe, for as many epochs and the same seeds.

    python benchmarks/methods.py --recipe digits-demo --epochs 40

Each method runs with the settings that the recipe has for it, one thread a run. The test set is read once a run, after
training; nothing was chosen by it. Seconds are those of training alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from page import write_page

PROBES = ("knn", "linear")


class Run(NamedTuple):
    """One method with one seed.

    Attributes:
        method: Its key.
        seed: Its seed.
        seconds: Training time.
        trained: Test accuracies by probe.
        untrained: Those of the same encoder before its first step; empty where the table has no row for it.
        pixels: Those of raw pixels, or empty.
    """

    method: str
    seed: int
    seconds: float
    trained: dict[str, float]
    untrained: dict[str, float]
    pixels: dict[str, float]


def one(task: tuple[str, int, argparse.Namespace]) -> Run:
    """Train one run and read the test set."""
    import ebclab
    from ebclab.training.display import SilentDisplay

    method, seed, asked = task
    settings = [f"training.epochs={asked.epochs}", f"seed={seed}", "resources.threads=1", *asked.set]
    if asked.data_root:
        settings.append(f"data.root={asked.data_root}")
    config = ebclab.compose(method, recipe=asked.recipe, overrides=settings)
    with tempfile.TemporaryDirectory() as folder:
        run = ebclab.pretrain(config, runs=folder, name="run", display=SilentDisplay())
        rows = ebclab.evaluate(run.path, only=PROBES, references=method in (asked.methods[0], "ebclr")).rows
        plain: list[dict[str, float]] = [
            {probe: value.value for probe, value in rows.get(name, {}).items()}
            for name in (method, "untrained encoder", "raw pixels")
        ]
        return Run(method, seed, run.result["seconds"], *plain)


def in_words(values: list[float]) -> str:
    """Return mean and standard deviation of accuracies in per cent."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def row(name: str, runs: list[dict[str, float]], seconds: list[float] | None, simclr: float) -> str:
    """Return a line of the table."""
    scores = " | ".join(in_words([run[probe] for run in runs]) for probe in PROBES)
    if seconds is None:
        return f"| {name} | {scores} | | |"
    middle = statistics.median(seconds)
    return f"| {name} | {scores} | {middle:.0f} | {middle / simclr:.1f}x |"


def main() -> None:
    from energy_contrast.catalog import METHODS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="digits-demo")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--at-once", type=int, default=2)
    asked = parser.parse_args()
    tasks = [(method, seed, asked) for seed, method in product(asked.seeds, asked.methods)]
    started = time.time()
    with ProcessPoolExecutor(asked.at_once, mp_context=get_context("spawn")) as pool:
        runs: list[Any] = []
        for run in pool.map(one, tasks):
            runs.append(run)
            print(f"{time.time() - started:.0f} s: {run.method}, seed {run.seed}: {run.trained}, {run.seconds:.0f} s")
    by_method = {method: [run for run in runs if run.method == method] for method in asked.methods}
    first = by_method[asked.methods[0]]
    simclr = statistics.median(run.seconds for run in by_method.get("simclr", first))
    lines = ["| method | test kNN % | test linear % | seconds | of SimCLR's |", "|---|---|---|---|---|"]
    for method, own in by_method.items():
        lines.append(row(method, [run.trained for run in own], [run.seconds for run in own], simclr))
        if method == "ebclr":  # its encoder has no batch norm
            lines.append(row("ebclr's encoder, untrained", [run.untrained for run in own], None, simclr))
    lines.append(row(f"{asked.methods[0]}'s encoder, untrained", [run.untrained for run in first], None, simclr))
    lines.append(row("raw pixels", [run.pixels for run in first], None, simclr))
    extra = "".join(f" --set {setting}" for setting in asked.set)
    command = f"`python benchmarks/methods.py --recipe {asked.recipe} --epochs {asked.epochs}{extra}`"
    title = f"All methods, {asked.recipe}, {asked.epochs} epochs, {len(asked.seeds)} seeds"
    write_page(f"methods_{asked.recipe.replace('-', '_')}", title, command, ("torch", "scikit-learn"), "\n".join(lines))


if __name__ == "__main__":
    main()
