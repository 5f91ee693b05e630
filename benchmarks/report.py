"""Time, memory and size of the report of a sweep of 1,000 trials of 100 epochs, from a generated log.

python benchmarks/report.py [--trials 1000] [--epochs 100]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import write_page

from ebclab.config import compose
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import make_plan, write_plan
from ebclab.sweeps.request import SweepRequest

RUNGS = (20, 60)


def write_sweep(folder: SweepFolder, trials: int, epochs: int) -> None:
    """Write a plan and a log in which two of three trials stop at each rung and 27 runs confirm."""
    plan = make_plan(
        compose("flatclr", overrides=[f"training.epochs={epochs}"]), SweepRequest(trials=trials, top=8, seeds=3)
    )
    folder.path.mkdir()
    write_plan(folder.plan, plan)
    source = random.Random(0)
    with folder.log.open("w", encoding="utf-8") as log:
        for number in range(trials):
            point = {name: parameter.at(source.random()) for name, parameter in plan.space.by_name.items()}
            best = 0.9 - 0.05 * (math.log10(point["optimizer.learning_rate"]) + 2.5) ** 2 + source.gauss(0, 0.01)
            luck = source.random()
            last = RUNGS[0] if luck < 2 / 3 else RUNGS[1] if luck < 8 / 9 else epochs
            name, settings = f"{number:04d}", plan.space.settings(point)
            events = [{"event": "trial", "kind": "search", "number": number, "point": point, "settings": settings}]
            events[0] |= {"seed": 0, "epochs": epochs}
            for epoch in range(1, last + 1):
                value = best * (1 - math.exp(-epoch / 25)) + source.gauss(0, 0.003)
                metrics = {"loss": 1.0, "info_nce": 5 - value, "ess": value / 3, "log_k_saturation": 0.3 * value}
                metrics |= {"alignment": 0.3, "uniformity": -2.5, "effective_rank": 20.5, "images_per_second": 1234.5}
                told = {"objective": value, "seconds": 4.0 * epoch, "metrics": metrics}
                events.append({"event": "epoch", "epoch": epoch, **told})
            end = ("finished", "") if last == epochs else ("stopped", f"rung {last}: {value:.4g} is below 0.9")
            events.append({"event": "ended", "state": end[0], "reason": end[1], "seconds": 4.0 * last})
            log.writelines(json.dumps({**event, "trial": name, "time": "2026-01-01"}) + "\n" for event in events)


def measure(folder: SweepFolder) -> tuple[float, float, float]:
    """Return seconds, seconds of the processor and peak memory in MB of one ``ebclab report`` in its own process."""
    code = (
        "import resource, sys; from ebclab.cli import main; code = main(sys.argv[1:]);"
        "used = resource.getrusage(resource.RUSAGE_SELF);"
        "print('used', used.ru_utime + used.ru_stime, used.ru_maxrss / 1024); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "report", str(folder.path)]
    started = time.perf_counter()
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds = time.perf_counter() - started
    processor, megabytes = said.split("used ")[1].split()
    return seconds, float(processor), float(megabytes)


def main() -> None:
    """Generate, measure three times without and with an earlier report, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = SweepFolder(Path(place) / "sweep")
        write_sweep(folder, asked.trials, asked.epochs)
        runs, again = [], []
        for _ in range(3):
            for earlier in folder.path.glob("report.*"):
                earlier.unlink()
            runs.append(measure(folder))
            again.append(measure(folder))
        sizes = {suffix: (folder.path / f"report.{suffix}").stat().st_size / 1e6 for suffix in ("html", "json", "csv")}
        log = folder.log.stat().st_size / 1e6
    seconds = sorted(run[0] for run in runs)
    rows = [
        (
            "whole command, seconds (median of 3, least, most)",
            f"{seconds[1]:.1f} ({seconds[0]:.1f}, {seconds[2]:.1f})",
            "10",
        ),
        ("of the processor, seconds (least)", f"{min(run[1] for run in runs):.1f}", ""),
        (
            "of the processor where a report of the same trials is there, seconds (least)",
            f"{min(run[1] for run in again):.1f}",
            "2",
        ),
        ("peak memory, MB", f"{max(run[2] for run in runs):.0f}", "1,000"),
        ("page, MB", f"{sizes['html']:.1f}", "15"),
        ("JSON and CSV beside it, MB", f"{sizes['json']:.1f}, {sizes['csv']:.1f}", ""),
        ("log that was read, MB", f"{log:.1f}", ""),
    ]
    table = "| | measured | bound |\n|---|---|---|\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)
    words = f"--trials {asked.trials} --epochs {asked.epochs}"
    title = f"Report of a sweep of {asked.trials:,} trials of {asked.epochs} epochs"
    write_page(
        "report", title, f"`python benchmarks/report.py {words}`", ("ebclab", "plotly", "optuna", "jinja2"), table
    )


if __name__ == "__main__":
    main()
