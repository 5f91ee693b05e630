"""Every method of the catalogue on one data set, with one recipe, for as many epochs and the same seeds.

    python benchmarks/methods.py --recipe digits-demo --epochs 40

Each method runs with the settings that the recipe has for it, one thread a run. The test set is read once a run, after
training; nothing was chosen by it. Seconds are a processor's, of training with its monitors. Accuracies have 95 %
intervals for other seeds and other test images; the differences to the first method hold together.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from page import write_page

from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import CHANCE, Measurements, difference_with_chance, mean_and_interval

PROBES = ("knn", "linear")
UNTRAINED, PIXELS = "untrained encoder", "raw pixels"


class Run(NamedTuple):
    """One method with one seed.

    Attributes:
        method: Its key.
        seed: Its seed.
        seconds: Processor seconds of training.
        scores: Test accuracies and answers by encoder and probe; the untrained encoder and raw pixels where the table
            has a row for them.
    """

    method: str
    seed: int
    seconds: float
    scores: dict[str, dict[str, tuple[float, Answers | None]]]


def one(task: tuple[str, int, argparse.Namespace]) -> Run:
    """Train one run and read the test set; a run that an earlier call has kept is read."""
    import ebclab
    from ebclab.training.display import Listener

    method, seed, asked = task
    kept = asked.keep / f"{method}-{seed}.pickle" if asked.keep else None
    if kept and kept.exists():
        known: Run = pickle.loads(kept.read_bytes())  # written by this script
        return known
    settings = [f"training.epochs={asked.epochs}", f"seed={seed}", "resources.threads=1", *asked.set]
    if asked.data_root:
        settings.append(f"data.root={asked.data_root}")
    config = ebclab.compose(method, recipe=asked.recipe, overrides=settings)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        run = ebclab.pretrain(config, runs=folder, name="run", display=Listener())
        seconds = time.process_time() - started
        rows = ebclab.evaluate(run.path, only=PROBES, references=method in (asked.methods[0], "ebclr")).rows
        scores = {
            name: {probe: (score.value, score.answers) for probe, score in rows[name].items()}
            for name in (method, UNTRAINED, PIXELS)
            if name in rows
        }
        made = Run(method, seed, seconds, scores)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(made))
    return made


def measured(runs: list[Run], encoder: str, probe: str) -> Measurements:
    """Return what runs measured of an encoder by one probe."""
    scores = [run.scores[encoder][probe] for run in runs]
    return Measurements.of([run.seed for run in runs], [value for value, _ in scores], [each for _, each in scores])


def in_words(found: Measurements) -> str:
    """Return the mean over seeds in per cent, with its 95 % interval for other seeds and other images."""
    mean = mean_and_interval(found, 1, is_rate=True)
    if mean.low is None or mean.high is None:
        return f"{100 * mean.mean:.1f}"
    return f"{100 * mean.mean:.1f} ({100 * mean.low:.1f} to {100 * mean.high:.1f})"


def against(found: Measurements, other: Measurements, num_compared: int) -> str:
    """Return the difference to another row in points; all of a table's differences hold together."""
    gap = difference_with_chance(found, other, CHANCE / num_compared)
    if gap.low is None or gap.high is None:
        return f"{100 * gap.mean:+.1f}, {gap.verdict}"
    return f"{100 * gap.mean:+.1f} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f}), {gap.verdict}"


def table(by_method: dict[str, list[Run]], first: str) -> list[str]:
    """Return the lines of the table: each method beside the first one, then what no method has trained."""
    rows = [(method, runs, method) for method, runs in by_method.items()]
    if "ebclr" in by_method:  # its encoder has no batch norm
        rows.append(("ebclr's encoder, untrained", by_method["ebclr"], UNTRAINED))
    rows += [(f"{first}'s encoder, untrained", by_method[first], UNTRAINED), ("raw pixels", by_method[first], PIXELS)]
    heads = [f"test {probe} %, 95 % | over {first}, points" for probe in PROBES]
    lines = [f"| encoder | {' | '.join(heads)} | processor seconds | of {first}'s |", "|---|---|---|---|---|---|---|"]
    middle = statistics.median(run.seconds for run in by_method[first])
    for name, runs, encoder in rows:
        cells = []
        for probe in PROBES:
            found, start = measured(runs, encoder, probe), measured(by_method[first], first, probe)
            same = encoder == first
            cells += [in_words(found), "" if same else against(found, start, len(PROBES) * (len(rows) - 1))]
        seconds = statistics.median(run.seconds for run in runs)
        cost = [f"{seconds:.0f}", f"{seconds / middle:.1f}x"] if encoder in by_method else ["", ""]
        lines.append(f"| {' | '.join([name, *cells, *cost])} |")
    return lines


def parser_of_runs(description: str | None, *, epochs: int, methods: list[str]) -> argparse.ArgumentParser:
    """Return the options of a script that trains methods with several seeds.

    Args:
        description: What the script says of itself.
        epochs: How many, unless somebody says otherwise.
        methods: Which, likewise.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="digits-demo")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=methods)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder of finished runs, so that a broken-off call goes on")
    return parser


def trained(tasks: list[tuple[str, int, argparse.Namespace]], at_once: int) -> list[Run]:
    """Return the runs of tasks, in their order, each told when it is done.

    Args:
        tasks: Method, seed and options of each.
        at_once: Processes.
    """
    started, runs = time.time(), list[Run]()
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        for (_, _, asked), run in zip(tasks, pool.map(one, tasks), strict=True):
            runs.append(run)
            what = " ".join((run.method, *asked.set))
            print(f"{time.time() - started:.0f} s: {what}, seed {run.seed}, {run.seconds:.0f} s", flush=True)
    return runs


def main() -> None:
    from energy_contrast.catalog import METHODS

    parser = parser_of_runs(__doc__, epochs=40, methods=list(METHODS))
    parser.add_argument("--name", help="of the page; that of the recipe when left out")
    asked = parser.parse_args()
    runs = trained([(method, seed, asked) for seed, method in product(asked.seeds, asked.methods)], asked.at_once)
    by_method = {method: [run for run in runs if run.method == method] for method in asked.methods}
    lines = table(by_method, asked.methods[0])
    extra = "".join(f" --set {setting}" for setting in asked.set)
    command = f"`python benchmarks/methods.py --recipe {asked.recipe} --epochs {asked.epochs}{extra}`"
    title = f"All methods, {asked.recipe}, {asked.epochs} epochs, {len(asked.seeds)} seeds"
    name = asked.name or f"methods_{asked.recipe.replace('-', '_')}"
    write_page(name, title, command, ("torch", "scikit-learn"), "\n".join(lines))


if __name__ == "__main__":
    main()
